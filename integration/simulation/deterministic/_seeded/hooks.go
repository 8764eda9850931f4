package deterministic

import _ "unsafe" // for go:linkname

const enabled = true

//go:linkname arm runtime.seeded_arm
func arm(seed uint64, shuffle, yield uint32)

//go:linkname stats runtime.seeded_stats
func stats() (switches, strays uint64)
