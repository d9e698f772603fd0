package policy

import (
	"cmp"
	"slices"

	"autotune/model"
)

// Kind is one policy that a spec can name.
type Kind struct {
	// Name is what the spec begins with.
	Name string
	// Usage is the form of its spec, with the defaults.
	Usage string
	// Summary says in one line what it does.
	Summary string

	keys []string
	make func(*arguments) (model.Policy, error)
}

// Kinds returns every policy, ordered by name.
func Kinds() []Kind {
	kinds := []Kind{
		aimdKind(), baseKind(), greyboxKind(), ladderKind(), linUCBKind(), piKind(), randomKind(), safeBOKind(), staticKind(), thompsonKind(),
	}
	slices.SortFunc(kinds, func(a, b Kind) int { return cmp.Compare(a.Name, b.Name) })
	return kinds
}

func names(kinds []Kind) []string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = k.Name
	}
	return out
}
