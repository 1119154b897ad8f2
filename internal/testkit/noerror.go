package testkit

import "testing"

// NoError ends the test if err is not nil.
func NoError(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
