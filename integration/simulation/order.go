package simulation

// OrdersVariable makes package plans read orders. Package runner sets it.
const OrdersVariable = "SQLBRAIN_SIMULATION_ORDERS"

// Order asks a process to simulate a plan.
type Order struct {
	Plan  Plan
	Trace bool // return the trace
}

// Outcome is the result of an order.
type Outcome struct {
	Violations []string
	Stats      Stats
	Requests   map[string]int // of Result
	Lines      int            // of the trace
	Digest     string         // of the trace
	Trace      []string
}
