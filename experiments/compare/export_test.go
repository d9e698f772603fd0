package compare

var (
	Deal        = deal
	Decide      = decide
	LoadChanges = loadChanges
	Offered     = offered
	Late        = late
	AtRest      = atRest
	Seeded      = seeded
	NewBare     = newBare
)

// Stepper decides upon a sample and applies what follows.
type Stepper = stepper

// Grid returns the settings that a plan's references choose from.
func (p *Plan) Grid() int { return len(p.grid()) }
