package policy

import (
	"errors"
	"io"

	"autotune/model"
)

// Learner is a policy whose knowledge can outlive it.
type Learner interface {
	model.Policy
	// Save writes what was learned.
	Save(w io.Writer) error
	// Load takes what an earlier policy of the same kind wrote, and leaves the
	// policy as it was upon an error, which wraps [ErrBadModel] where the text
	// is at fault. It is called before the first Decide.
	Load(r io.Reader) error
}

// ErrBadModel is wrapped by the errors of a [Learner] that cannot use what it
// was given to load.
var ErrBadModel = errors.New("not a usable model")
