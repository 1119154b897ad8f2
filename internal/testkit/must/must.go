// Package must shortens the set-up of tests: an error in it ends the test by a panic.
package must

// Get returns v.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}

// Do panics if err is not nil.
func Do(err error) {
	if err != nil {
		panic(err)
	}
}
