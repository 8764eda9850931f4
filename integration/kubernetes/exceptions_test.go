package kubernetes

// exceptions are the tests that are known to fail, by engine and by
// "package.Test", with the reason. A test that is listed and passes is told as a
// failure, so that the list does not outlive its reasons.
var exceptions = map[string]map[string]string{
	"sqlite": {},
	"mysql":  {},
}

// judgeByClock are the tests that fail on a busy machine, with what they do.
var judgeByClock = map[string]string{
	"etcd3.TestCompact": "allows a compaction 100 ms",
}
