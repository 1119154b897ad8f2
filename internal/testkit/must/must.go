// Package must has the set-up of tests panic on an error.
package must

// Get returns v.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}

// Do panics on an error.
func Do(err error) {
	if err != nil {
		panic(err)
	}
}
