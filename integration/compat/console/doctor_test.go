package console

import "testing"

func TestDoctorExaminesTheDatabase(t *testing.T) {
	n, _ := start(t)
	p := open(t, n.Endpoint())
	p.click("Doctor")
	p.see("Not examined yet.")
	p.click("Examine")
	p.see("0 failed.", "journal_mode is wal", "privileges")
	p.fits("the doctor")
}
