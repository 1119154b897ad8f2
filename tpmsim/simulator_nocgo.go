//go:build !cgo

package tpmsim

// openSimulator says why there is no simulator in this program.
func openSimulator([]byte) (*device, error) { return nil, ErrNoCGO }
