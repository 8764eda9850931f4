package overlay

var patches = []patch{
	// The order in which the goroutines of the bubble run.
	insertAfter("runtime/proc.go", "func runqput(pp *p, gp *g, next bool) {\n", "\tif seededPut(gp) {\n\t\treturn\n\t}\n"),
	insertAfter("runtime/proc.go", "func globrunqput(gp *g) {\n\tassertLockHeld(&sched.lock)\n", "\tif seededPut(gp) {\n\t\treturn\n\t}\n"),
	insertAfter("runtime/proc.go", "\t// local runq\n\tif gp, inheritTime := runqget(pp); gp != nil {\n\t\treturn gp, inheritTime, false\n\t}\n",
		"\tif gp := seededGet(); gp != nil {\n\t\treturn gp, false, false\n\t}\n"),
	{"runtime/proc.go", 1, "\tif !runqempty(pp) || !sched.runq.empty() {\n\t\tstartm(pp, false, false)",
		"\tif !runqempty(pp) || !sched.runq.empty() || seededRunnable() {\n\t\tstartm(pp, false, false)"},
	insertAfter("runtime/proc.go", "\tmp.curg = gp\n\tgp.m = mp\n\tgp.syncSafePoint = false // Clear the flag, which may have been set by morestack.\n",
		"\tseededRun(gp)\n"),
	insertAfter("runtime/proc.go", "\t// We need to record gp.bubble here, since waitunlockf can change it.\n\tbubble := gp.bubble\n",
		"\tseededRelease(gp)\n"),
	{"runtime/proc.go", 1, "\tdropg()\n\tif preempted && sched.gcwaiting.Load() {\n",
		"\tdropg()\n\tif !preempted {\n\t\tseededRelease(gp)\n\t}\n\tif preempted && sched.gcwaiting.Load() {\n"},
	{"runtime/proc.go", 1, "\tdropg()\n\trunqput(pp, gp, false)\n\tschedule()\n",
		"\tdropg()\n\tseededRelease(gp)\n\trunqput(pp, gp, false)\n\tschedule()\n"},
	{"runtime/proc.go", 1, "\tgp.timer = nil\n\tgp.bubble = nil\n",
		"\tgp.timer = nil\n\tseededRelease(gp)\n\tgp.bubble = nil\n"},
	{"runtime/coro.go", 1, "\t// Switch to gnext. Does not return.\n\tgogo(&gnext.sched)\n",
		"\tif gp != nil {\n\t\tseededRelease(gp)\n\t}\n\tseededRun(gnext)\n\n\t// Switch to gnext. Does not return.\n\tgogo(&gnext.sched)\n"},
	insertAfter("runtime/synctest.go", "\tbubble.now = synctestBaseTime\n", "\tseededStart(bubble, gp)\n"),
	insertAfter("runtime/synctest.go", "\tgp.bubble = bubble\n\tdefer func() {\n", "\t\tseededStop(bubble)\n"),

	// A goroutine that gives way while it clears memory or assists the collector was asked to: it is preempted.
	{"runtime/proc.go", 1, "\t\tgogo(&gp.sched) // never return\n\t}\n\tgoschedImpl(gp, false)\n", "\t\tgogo(&gp.sched) // never return\n\t}\n\tgoschedImpl(gp, true)\n"},
	{"runtime/mgcmark.go", 1, "\t\tif gp.preempt {\n\t\t\tGosched()\n", "\t\tif gp.preempt {\n\t\t\tmcall(gopreempt_m)\n"},

	// Locks: no spinning, and a fake clock for starvation.
	insertAfter("runtime/proc.go", "func internal_sync_runtime_canSpin(i int) bool {\n", "\tif seededHere() {\n\t\treturn false\n\t}\n"),
	{"runtime/sema.go", 1, "func internal_sync_nanotime() int64 {\n\treturn nanotime()\n",
		"func internal_sync_nanotime() int64 {\n\tif seededHere() {\n\t\treturn seeded.bubble.now\n\t}\n\treturn nanotime()\n"},

	// More places where another goroutine may run: before locks and channel operations.
	// Not in Once and Pool: what happens once in a process must not change later seeds.
	{"sync/mutex.go", 1, "\tm.mu.Lock()\n", "\tseededYield(m)\n\tm.mu.Lock()\n"},
	insertAfter("sync/rwmutex.go", "func (rw *RWMutex) RLock() {\n", "\tseededYield(&rw.w)\n"),
	{"sync/once.go", 1, "\to.m.Lock()\n", "\to.m.mu.Lock()\n"},
	{"sync/pool.go", 1, "\tallPoolsMu.Lock()\n", "\tallPoolsMu.mu.Lock()\n"},
	insertAfter("sync/runtime.go", "import \"unsafe\"\n", "\n//go:linkname seededYield\n//go:noescape\nfunc seededYield(m *Mutex)\n"),
	insertAfter("runtime/chan.go", "func chansend(c *hchan, ep unsafe.Pointer, block bool, callerpc uintptr) bool {\n", "\tseededYield(unsafe.Pointer(c))\n"),
	insertAfter("runtime/chan.go", "func chanrecv(c *hchan, ep unsafe.Pointer, block bool) (selected, received bool) {\n", "\tseededYield(unsafe.Pointer(c))\n"),
	insertAfter("runtime/chan.go", "func closechan(c *hchan) {\n", "\tseededYield(unsafe.Pointer(c))\n"),

	// Random numbers.
	insertAfter("runtime/rand.go", "//go:nosplit\n//go:linkname rand\nfunc rand() uint64 {\n",
		"\tif seededHere() {\n\t\treturn seeded.random.next()\n\t}\n"),
	insertAfter("runtime/rand.go", "func maps_rand() uint64 {\n", "\tif seededHere() {\n\t\treturn seeded.slice\n\t}\n"),
	{"runtime/rand.go", 1, "\tglobalRand.state.Init(*seed)\n", "\tclear(seed[:])\n\tseed[0] = 1\n\tglobalRand.state.Init(*seed)\n"},
	{"runtime/select.go", 1, "cheaprandn(uint32(norder + 1))", "seededCheapN(uint32(norder + 1))"},
	{"runtime/time.go", 1, "t.rand = cheaprand()", "t.rand = seededCheap()"},
	// select adds its timers to the heap, and draws a number for each, in the order of its cases and not of addresses.
	{"runtime/select.go", 1, "\t\tif c.timer != nil {\n\t\t\tblockTimerChan(c)\n\t\t}\n\t}\n",
		"\t}\n\tfor i := range scases {\n\t\tif c := scases[i].c; c != nil && c.timer != nil {\n\t\t\tblockTimerChan(c)\n\t\t}\n\t}\n"},

	// Speed: stacks that need not grow, and no memory that goes back to the system between runs.
	{"runtime/stack.go", 1, "var startingStackSize uint32 = fixedStack\n", "var startingStackSize uint32 = 16 << 10\n"},
	insertAfter("runtime/stack.go", "func gcComputeStartingStackSize() {\n", "\tif true {\n\t\treturn\n\t}\n"),
	{"runtime/proc.go", 1, "newg = malg(stackMin)", "newg = malg(int32(startingStackSize))"},
	insertAfter("runtime/mgcscavenge.go", "func gcPaceScavenger(memoryLimit int64, heapGoal, lastHeapGoal uint64) {\n",
		"\tif true {\n\t\tscavenge.memoryLimitGoal.Store(^uint64(0))\n\t\tscavenge.gcPercentGoal.Store(^uint64(0))\n\t\treturn\n\t}\n"),

	// Hashes of map keys: the same on every machine, and for pointers not of the address.
	insertAfter("runtime/alg.go", "func alginit() {\n",
		"\tif true {\n\t\tfor i := range hashkey {\n\t\t\thashkey[i] = uintptr(i)*0x9e3779b1 + 0x7f4a7c15\n\t\t}\n\t\treturn\n\t}\n"),
	{"runtime/alg.go", 1, "\tif t.TFlag&abi.TFlagRegularMemory != 0 {\n\t\t// Handle ptr sizes specially, see issue 37086.\n",
		"\tswitch t.Kind() {\n\tcase abi.Pointer, abi.Chan, abi.UnsafePointer:\n\t\treturn seededPointer(*(*unsafe.Pointer)(p), h)\n\t}\n" +
			"\tif t.TFlag&abi.TFlagRegularMemory != 0 && t.PtrBytes == 0 {\n\t\t// Handle ptr sizes specially, see issue 37086.\n"},
	insertAfter("runtime/mheap.go", "\tspecialBubbleAlloc         fixalloc // allocator for specialBubble\n",
		"\tspecialSeededAlloc         fixalloc // allocator for specialSeeded\n"),
	insertAfter("runtime/mheap.go", "\th.specialBubbleAlloc.init(unsafe.Sizeof(specialBubble{}), nil, nil, &memstats.other_sys)\n",
		"\th.specialSeededAlloc.init(unsafe.Sizeof(specialSeeded{}), nil, nil, &memstats.other_sys)\n"),
	{"runtime/mheap.go", 1, "\tcase _KindSpecialBubble:\n\t\tst :=",
		"\tcase _KindSpecialSeeded:\n\t\tlock(&mheap_.speciallock)\n\t\tmheap_.specialSeededAlloc.free(unsafe.Pointer(s))\n\t\tunlock(&mheap_.speciallock)\n" +
			"\tcase _KindSpecialBubble:\n\t\tst :="},
	{"internal/sync/hashtriemap.go", 1, "ht.seed = uintptr(runtime_rand())", "ht.seed = 0x51ed270b"},
	{"internal/runtime/maps/map.go", 4, "m.seed = uintptr(rand())", "m.seed = 0"},
	{"internal/runtime/maps/map.go", 5, "typ.Hasher(", "seededKey(typ, "},
	{"internal/runtime/maps/runtime.go", 3, "typ.Hasher(", "seededKey(typ, "},
	{"internal/runtime/maps/runtime_fast32.go", 4, "typ.Hasher(", "seededKey(typ, "},
	{"internal/runtime/maps/runtime_fast64.go", 4, "typ.Hasher(", "seededKey(typ, "},
	{"internal/runtime/maps/runtime_faststr.go", 4, "typ.Hasher(", "seededKey(typ, "},
	{"internal/runtime/maps/table.go", 4, "typ.Hasher(", "seededKey(typ, "},
}

func insertAfter(file, anchor, text string) patch { return patch{file, 1, anchor, anchor + text} }
