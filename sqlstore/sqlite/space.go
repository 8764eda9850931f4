package sqlite

// The reserve is a sixteenth of the file system, and no more than maxReserve: the log has about 40 MB before it
// is begun anew, and what is deleted takes space in the table too until it is compacted.
const (
	reserveShare = 16
	maxReserve   = 128 << 20
)

// FreeSpace implements sqldb.Engine.
func (e *engine) FreeSpace() (free, reserve int64, err error) {
	free, total, err := fileSystem(e.path)
	return free, min(total/reserveShare, maxReserve), err
}
