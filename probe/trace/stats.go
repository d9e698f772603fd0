package trace

// Stats tell what a reader met so far.
type Stats struct {
	// Frames counts the zstd frames read, Bytes their uncompressed length.
	Frames int
	Bytes  int64
	// Samples and Others count the records delivered.
	Samples, Others uint64
	// Unknown counts the lines skipped for their kind, by kind. At most 64
	// kinds are told apart; the rest is under the empty kind.
	Unknown map[Kind]uint64
	// Gaps is what the recorder says that it could not write.
	Gaps Gap
	// Damaged are the frames skipped by a salvage, and Missing the records
	// lost with them; records of a frame before a damaged header or after the
	// last intact frame cannot be counted.
	Damaged []error
	Missing Gap
	// HeaderLost is set when a salvage had to go without the header.
	HeaderLost bool
	// Truncated is set when the trace is cut off.
	Truncated *TruncatedError
	// Ended is set when the end record was read: the recorder closed the
	// trace. A trace without it may lack its last frames.
	Ended bool
}
