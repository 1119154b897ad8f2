package testkit

import (
	"flag"
	"testing"
)

// BeginFuzz limits the minimizing of inputs to ten runs. By default the engine spends up to a
// minute on each input that reaches new code, and with inputs of some hundred bytes does nothing
// else. A -fuzzminimizetime on the command line wins.
func BeginFuzz(f *testing.F) {
	f.Helper()
	const name = "test.fuzzminimizetime"
	given := false
	flag.Visit(func(set *flag.Flag) { given = given || set.Name == name })
	if !given {
		NoError(f, flag.Set(name, "10x"))
	}
}
