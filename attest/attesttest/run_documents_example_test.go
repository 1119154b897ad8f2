package attesttest_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
)

// carelessPlatform forgets to verify the documents that it reads.
type carelessPlatform struct{ *attesttest.Platform }

func (p carelessPlatform) Verify(_ context.Context, data []byte, _ *attest.Inquiry) (*document.Claims, error) {
	return p.Read(data)
}

// machinesOf are the machines of a platform, whose clock can be set.
func machinesOf(p *attesttest.Platform) func(machine string, at time.Time) document.Source {
	return func(machine string, at time.Time) document.Source {
		stopped := *p
		stopped.Now = func() time.Time { return at }
		return stopped.Machine(machine)
	}
}

// The author of a kind of evidence by documents has it attacked: once with a platform that
// verifies nothing, once as it should be. In a test of one's own the last lines are
// attesttest.Run(t, provider, world).
func ExampleDocuments() {
	platform, err := attesttest.OpenPlatform()
	if err != nil {
		log.Fatal(err)
	}
	attacker, err := attesttest.OpenPlatform()
	if err != nil {
		log.Fatal(err)
	}
	for _, verifies := range []document.Platform{carelessPlatform{platform}, platform} {
		kind, err := document.NewKind(document.KindConfig{Provider: "platform", Identities: []attest.Grammar{{Kind: "platform"}}, ValueSize: 32, Platform: verifies})
		if err != nil {
			log.Fatal(err)
		}
		world, err := attesttest.OpenWorld(attesttest.WorldOptions{
			Documents: &attesttest.Documents{Kind: kind, Source: machinesOf(platform), Attacker: machinesOf(attacker)}})
		if err != nil {
			log.Fatal(err)
		}
		verifier, err := attest.NewVerifier(world.Config)
		if err != nil {
			log.Fatal(err)
		}
		outcomes := attesttest.Try(context.Background(), verifier, world)
		fmt.Printf("%T: %q\n", verifies, attesttest.GotIn(outcomes))
	}
	// Output:
	// attesttest_test.carelessPlatform: ["document-forged" "document-of-yesterday" "document-of-tomorrow" "document-value-replaced" "document-bytes-not-covered" "document-identity-replaced" "document-field-empty" "document-field-missing" "document-field-prefix" "document-field-of-one-repeated-byte" "document-field-of-another-machine" "budget-spent"]
	// *attesttest.Platform: []
}
