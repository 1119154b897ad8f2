//go:build cgo

package tpmsim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/google/go-tpm-tools/simulator"
	"github.com/google/go-tpm/tpm2/transport"
)

// openSimulator starts the simulator, with seeds derived from seed unless it is nil. The
// caller must already own the simulator.
func openSimulator(seed []byte) (*device, error) {
	var sim *simulator.Simulator
	var err error
	if seed == nil {
		sim, err = simulator.Get()
	} else {
		sum := sha256.Sum256(seed)
		sim, err = simulator.GetWithFixedSeedInsecure(int64(binary.BigEndian.Uint64(sum[:])))
	}
	if err != nil {
		return nil, fmt.Errorf("tpmsim: start the simulator: %w", err)
	}
	return &device{tpm: transport.FromReadWriter(sim), reset: sim.Reset, close: func() error {
		defer release()
		return sim.Close()
	}}, nil
}
