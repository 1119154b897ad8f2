package eventlog_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/eventlog"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/refusal"
)

// A verifier that demands Secure Boot, and a boot loader that it knows.
func ExamplePolicy() {
	loader := sha256.Sum256([]byte("the boot loader's Authenticode digest"))
	policy := &eventlog.BootPolicy{
		RequireSecureBoot: true,
		Predicate: func(_ context.Context, l *eventlog.Log) error {
			// PCR 4 has the digests of the programs that the firmware started. An error here
			// means that the quote does not cover it.
			events, err := l.EventsOf(tpm2.TPMAlgSHA256, 4)
			if err != nil {
				return err
			}
			for _, e := range events {
				if string(e.Digest) == string(loader[:]) {
					return nil
				}
			}
			return &refusal.Error{Check: "boot-loader", Got: "another", Want: fmt.Sprintf("%x", loader)}
		},
	}
	_ = attest.VerifierConfig{ /* ..., QuotePolicy: policy */ }

	// Without a log nothing is assumed.
	err := policy.CheckQuote(context.Background(), &tpm.Measured{Quote: &statement.Quoted{}})
	fmt.Println(errors.Is(err, eventlog.CheckMissing), err)
	// Output:
	// true event-log-missing: got nothing, want an event log
}

func ExampleReplay() {
	var quoted statement.Quoted // of statement.VerifyQuote; this one covers nothing
	_, err := eventlog.Replay([]byte("a log"), &quoted, nil)
	fmt.Println(err)
	// Output:
	// event-log-uncovered: got no quoted PCR to explain, want at least one
}
