package forge

import "errors"

// Failure is a panic of must: a step of the generator that did not work. The steps
// are hundreds of one-line calls, and the only thing to do about an error is to
// stop and name it.
type Failure struct{ err error }

// Must returns v. An error is a failure.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Check makes an error a failure.
func Check(err error) {
	if err != nil {
		panic(Failure{err})
	}
}

// Caught turns a failure into an error. Use it as a deferred call.
func Caught(err *error) {
	if r := recover(); r != nil {
		*err = errors.Join(*err, Recovered(r))
	}
}

// Recovered is the error of a failure that was recovered. Any other panic goes on.
func Recovered(r any) error {
	f, ok := r.(Failure)
	if !ok {
		panic(r)
	}
	return f.err
}
