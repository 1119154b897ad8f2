package attesttest

import "errors"

// failure is the panic of must: a step in the making of a world that cannot be done. The steps
// are calls of one line each, and the only thing to do about an error is to stop and name it.
type failure struct{ err error }

// must returns v. An error is a failure.
func must[T any](v T, err error) T {
	if err != nil {
		panic(failure{err})
	}
	return v
}

// caught turns a failure into an error. Use it as a deferred call.
func caught(err *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = errors.Join(*err, f.err)
	default:
		panic(f)
	}
}
