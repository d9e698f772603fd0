package demo

// Orders lets a test choose a seed by the orders that it gives.
func Orders(options Options) [][]string { return orders(options) }
