// Package tpmcapability reads a TPM's properties and handles (TPM2_GetCapability: TPM 2.0 Library, Part
// 3, 30.2).
package tpmcapability

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// Remember returns the TPM with a cache of its fixed properties (Part 2, 6.13): each NV read reads the
// size of the TPM's buffer.
func Remember(tpm transport.TPM) transport.TPM { return &remembering{TPM: tpm} }

type remembering struct {
	transport.TPM
	mu       sync.Mutex
	answered map[string][]byte
}

// getFixedProperty reports whether a command reads a fixed property: no sessions, TPM2_GetCapability,
// TPM_CAP_TPM_PROPERTIES, and a property of PT_FIXED.
func getFixedProperty(command []byte) bool {
	return len(command) == 22 && binary.BigEndian.Uint16(command) == uint16(tpm2.TPMSTNoSessions) &&
		binary.BigEndian.Uint32(command[6:]) == uint32(tpm2.TPMCCGetCapability) &&
		binary.BigEndian.Uint32(command[10:]) == uint32(tpm2.TPMCapTPMProperties) && binary.BigEndian.Uint32(command[14:])>>8 == 1
}

// Send sends a command unless its response is cached.
func (r *remembering) Send(command []byte) ([]byte, error) {
	if !getFixedProperty(command) {
		return r.TPM.Send(command)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.answered[string(command)]; ok {
		return bytes.Clone(known), nil
	}
	answer, err := r.TPM.Send(command)
	if err == nil && len(answer) >= 10 && binary.BigEndian.Uint32(answer[6:]) == uint32(tpm2.TPMRCSuccess) {
		if r.answered == nil {
			r.answered = map[string][]byte{}
		}
		r.answered[string(command)] = bytes.Clone(answer)
	}
	return answer, err
}
