package main

import (
	"fmt"
	"strconv"
	"strings"
)

// probeBudget is the share of a CPU that the probes may take, as
// [probe.Options] has it: zero is the default there, negative no limit.
type probeBudget float64

// UnmarshalText reads a percentage, or "none".
func (b *probeBudget) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*b = -1
		return nil
	}
	number, isShare := strings.CutSuffix(string(text), "%")
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !isShare || !(percent > 0 && percent <= 100) {
		return fmt.Errorf("%q is no share of a CPU; write a percentage above 0%%, for example 1%%, or none for no limit", text)
	}
	*b = probeBudget(percent / 100)
	return nil
}
