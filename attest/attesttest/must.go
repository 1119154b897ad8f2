package attesttest

// failure is the panic value of must, which caught turns into an error: a long setup of one-line steps
// stops at its first error.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// must returns v, and panics with a failure on an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(failure{err})
	}
	return v
}

// caught, as a deferred call, turns a failure into an error.
func caught(err *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = f
	default:
		panic(f)
	}
}
