// Package fuzzing is for fuzz targets.
package fuzzing

import (
	"flag"
	"testing"
)

// Begin has the engine spend its time on new inputs. By default it tries for a minute to make
// each input shorter that reaches new code; with inputs of some hundred bytes it does nothing
// else. The command line's -fuzzminimizetime stays as it is.
func Begin(f *testing.F) {
	f.Helper()
	const name = "test.fuzzminimizetime"
	given := false
	flag.Visit(func(set *flag.Flag) { given = given || set.Name == name })
	if given {
		return
	}
	if err := flag.Set(name, "10x"); err != nil {
		f.Fatal(err)
	}
}
