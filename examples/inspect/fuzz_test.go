package main

import "testing"

// FuzzInspect runs the whole program: it neither panics nor writes what a terminal
// would obey, and its exit status agrees with what it says.
func FuzzInspect(f *testing.F) {
	for _, input := range inputs(f) {
		f.Add(input)
		f.Add(input[:len(input)*2/3])
	}
	f.Add([]byte("-----BEGIN "))
	f.Add([]byte("{\"spec\":{\"request\":\"" + evil))
	f.Add([]byte("\x30\x80\x00\x00"))
	f.Add([]byte("MIIB"))
	f.Fuzz(func(t *testing.T, input []byte) { inspect(t, input) })
}
