package compare

import "strings"

// SplitSpecs splits a list of policy specs at its commas. A spec has commas of
// its own between parameters: a piece of the form key=value continues the spec
// before it, because no spec begins so (the first parameter follows a colon).
func SplitSpecs(list string) []string {
	var out []string
	for piece := range strings.SplitSeq(list, ",") {
		key, _, isPair := strings.Cut(piece, "=")
		if isPair && !strings.Contains(key, ":") && len(out) > 0 {
			out[len(out)-1] += "," + piece
			continue
		}
		out = append(out, strings.TrimSpace(piece))
	}
	return out
}
