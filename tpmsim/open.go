package tpmsim

import "testing"

// Open starts the in-process simulator and provisions it. A process has only one: while
// another is open, Open returns [ErrInUse] at once and names its opener. Without
// cgo it returns [ErrNoCGO]. (A simulator that the program opened directly through
// go-tpm-tools is not detected, and Open waits until that is closed.)
func Open(opts Options) (*TPM, error) {
	if err := acquire(caller()); err != nil {
		return nil, err
	}
	dev, err := openSimulator(opts.Seed)
	if err != nil {
		release()
		return nil, err
	}
	return provision(dev, "", opts)
}

// New is [Open] for tests: it fails the test on an error and closes the TPM when
// the test ends.
func New(t testing.TB, opts Options) *TPM {
	t.Helper()
	tpm, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, tpm)
	return tpm
}

// closeAfter closes the TPM when the test ends.
func closeAfter(t testing.TB, tpm *TPM) {
	t.Cleanup(func() {
		if err := tpm.Close(); err != nil {
			t.Error(err)
		}
	})
}
