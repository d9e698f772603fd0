package model

// Finding is one answer of a check of what works on this host.
type Finding struct {
	// Area groups findings ("kernel", "probe", "netdev", "application").
	Area string `json:"area"`
	// Name says what was tried.
	Name  string       `json:"name"`
	State FindingState `json:"state"`
	// Detail is what was seen; for a failure, the real error.
	Detail string `json:"detail"`
	// Errno is the symbolic errno of a failure ("EPERM"); null otherwise.
	Errno *string `json:"errno"`
	// Consequence is what does not work because of it, and Remedy what to do.
	Consequence string `json:"consequence"`
	Remedy      string `json:"remedy"`
}

// FindingState is how well something works.
type FindingState string

// The states.
const (
	FindingOK       FindingState = "ok"
	FindingDegraded FindingState = "degraded"
	FindingMissing  FindingState = "missing"
	// FindingUnknown: it could not be found out.
	FindingUnknown FindingState = "unknown"
)
