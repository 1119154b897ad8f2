package tpmop

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// counting is a TPM that has counted wrong passwords, and knows nothing else.
type counting struct {
	wrong, most uint32
	not         tpm2.TPMPT // a property that it does not have
	asked       int
}

func (c *counting) Send(command []byte) ([]byte, error) {
	c.asked++
	value := map[tpm2.TPMPT]uint32{tpm2.TPMPTLockoutCounter: c.wrong, tpm2.TPMPTMaxAuthFail: c.most}
	property := binary.BigEndian.Uint32(command[14:])
	if tpm2.TPMPT(property) == c.not {
		property++
	}
	answer := []byte{0x80, 0x01, 0, 0, 0, 27, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 1}
	answer = binary.BigEndian.AppendUint32(answer, property)
	return binary.BigEndian.AppendUint32(answer, value[tpm2.TPMPT(property)]), nil
}

func TestCheckLockout(t *testing.T) {
	for name, c := range map[string]struct {
		tpm        counting
		noDA       bool
		password   string
		tried      bool
		properties int // that the TPM is asked for
	}{
		"nothing counted":             {counting{wrong: 0, most: 3}, false, "x", true, 1},
		"nothing counted, one locks":  {counting{wrong: 0, most: 1}, false, "x", true, 1},
		"one of three":                {counting{wrong: 1, most: 3}, false, "x", false, 2},
		"one of four":                 {counting{wrong: 1, most: 4}, false, "x", true, 2},
		"two of four":                 {counting{wrong: 2, most: 4}, false, "x", false, 2},
		"half but one of 32":          {counting{wrong: 15, most: 32}, false, "x", true, 2},
		"half of 32":                  {counting{wrong: 16, most: 32}, false, "x", false, 2},
		"locked":                      {counting{wrong: 32, most: 32}, false, "x", false, 2},
		"locked, but it has noDA":     {counting{wrong: 32, most: 32}, true, "x", true, 0},
		"locked, but no password":     {counting{wrong: 32, most: 32}, false, "", true, 0},
		"a TPM that counts no sense":  {counting{wrong: math.MaxUint32, most: math.MaxUint32}, false, "x", false, 2},
		"a TPM that is always locked": {counting{wrong: 1, most: 0}, false, "x", false, 2},
		"not said how many":           {counting{wrong: 9, most: 3, not: tpm2.TPMPTLockoutCounter}, false, "x", true, 1},
		"not said how many lock it":   {counting{wrong: 1, most: 32, not: tpm2.TPMPTMaxAuthFail}, false, "x", false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			key := &LoadedKey{Public: new(statement.Public)}
			if c.noDA {
				key.Public.Attributes = attributeNoDA
			}
			if c.password != "" {
				key.Password = secret.New([]byte(c.password))
			}
			_, err := do(t, &c.tpm, func(ctx context.Context, h *Handles) (bool, error) { return true, h.CheckLockout(ctx, key) })
			if (err == nil) != c.tried || err != nil && !errors.Is(err, refusal.ErrRetry) || c.tpm.asked != c.properties {
				t.Errorf("got %v after %d questions, want it to be tried: %t", err, c.tpm.asked, c.tried)
			}
		})
	}
	if _, err := do(t, noTPM{}, func(ctx context.Context, h *Handles) (bool, error) {
		return true, h.CheckLockout(ctx, &LoadedKey{Public: new(statement.Public), Password: secret.New([]byte("x"))})
	}); err == nil {
		t.Error("tried where the TPM does not say")
	}
}
