package forge

import "errors"

// Failure is a panic of must: a step of the generator that did not work. The steps
// are hundreds of one-line calls, and the only thing to do about an error is to
// stop and name it.
type Failure struct{ err error }

func Must[T any](v T, err error) T {
	Check(err)
	return v
}

func Check(err error) {
	if err != nil {
		panic(Failure{err})
	}
}

// Caught turns a failure into an error. Use it as a deferred call.
func Caught(err *error) {
	switch r := recover().(type) {
	case nil:
	case Failure:
		*err = errors.Join(*err, r.err)
	default:
		panic(r)
	}
}
