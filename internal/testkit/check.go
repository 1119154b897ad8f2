package testkit

import "testing"

// NoError ends the test if err is not nil.
func NoError(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Must returns v, or panics: for values that are made where there is no test yet.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// MustDo panics on an error.
func MustDo(err error) {
	if err != nil {
		panic(err)
	}
}
