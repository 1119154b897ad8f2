package attesttest

import (
	"context"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// forged is an attack on TPM evidence: of a good answer, one thing of the binding is
// changed before the answer is made, or one thing of the answer afterwards.
func forged(class, name, what string, before, change func(*forgery)) Attack {
	return Attack{Name: name, Class: class, Description: what, make: func(_ context.Context, a *attempt) (*csr.Request, error) {
		applicant, err := a.applicant(wish{})
		if err != nil {
			return nil, err
		}
		f, err := a.forge(applicant, before)
		if err != nil {
			return nil, err
		}
		if change != nil {
			change(f)
		}
		return f.object()
	}}
}

// bindingAttacks are answers to challenges that the control plane gave, with its own
// challenge key, for something else.
func bindingAttacks() []Attack {
	bound := func(name, what string, change func(*attest.Binding)) Attack {
		return forged(ClassBinding, name, what, func(f *forgery) { change(f.binding) }, nil)
	}
	return []Attack{
		bound("answer-for-another-cluster", "The challenge was given for another cluster.", func(b *attest.Binding) { b.ClusterID = "another" }),
		bound("answer-for-another-signer", "The challenge was given for another signer.", func(b *attest.Binding) { b.SignerName = csr.SignerRecoveryTPM }),
		bound("answer-of-another-requester", "The challenge was given to the owner of another bootstrap token.", func(b *attest.Binding) { b.Requester = csr.BootstrapUserPrefix + "zzzzzz" }),
		bound("answer-for-another-lifetime", "The challenge was given for another expirationSeconds.", func(b *attest.Binding) { b.ExpirationSeconds = 31536000 }),
		bound("answer-of-another-machine-key", "The challenge was given to another machine.", func(b *attest.Binding) { b.MachineKey[0]++ }),
		bound("answer-for-another-request", "The challenge was given for another PKCS#10 request.", func(b *attest.Binding) { b.RequestHash[0]++ }),
		forged(ClassBinding, "challenge-key-unknown", "The challenge was made with a key that is in no ring.", func(f *forgery) {
			key := attest.NewRingKey(time.Unix(0, 0))
			f.ring = &key
		}, nil),
		forged(ClassBinding, "challenge-key-retired", "The challenge was made with a key that has been retired.", func(f *forgery) { f.ring = &f.world.retired }, nil),
		forged(ClassBinding, "challenge-secret-made-up", "Nobody gave the challenge: its secret is zeros.", func(f *forgery) { f.secret = make([]byte, attest.SecretSize) }, nil),
		forged(ClassBinding, "challenge-nonce-changed", "The nonce in the echoed binding was changed.", nil, func(f *forgery) { f.binding.Nonce[0]++ }),
		forged(ClassBinding, "challenge-window-moved", "The times in the echoed binding were moved on by a minute.", nil, func(f *forgery) {
			f.binding.IssuedAt += 60
			f.binding.NotAfter += 60
		}),
	}
}

// timeAttacks are answers at the wrong time.
func timeAttacks() []Attack {
	return []Attack{
		forged(ClassBinding, "answer-late", "The answer was filed a second after the challenge's window.", func(f *forgery) {
			f.binding.NotAfter = f.applicant.Object.Metadata.CreationTimestamp.Unix() - 1
		}, nil),
		forged(ClassBinding, "answer-early", "The answer was filed two minutes before its challenge was given.", func(f *forgery) {
			f.binding.IssuedAt = f.applicant.Object.Metadata.CreationTimestamp.Unix() + 120
			f.binding.NotAfter = f.binding.IssuedAt + 600
		}, nil),
		forged(ClassBinding, "challenge-window-stretched", "The challenge's window is two hours long.", func(f *forgery) {
			f.binding.NotAfter = f.binding.IssuedAt + 7200
		}, nil),
		forged(ClassBinding, "challenge-window-reversed", "The challenge's window ends before it begins.", func(f *forgery) {
			created := f.applicant.Object.Metadata.CreationTimestamp.Unix()
			f.binding.IssuedAt, f.binding.NotAfter = created+30, created
		}, nil),
		forged(ClassBinding, "answer-old", "The answer was filed two hours ago.", func(f *forgery) {
			created := f.world.Now().Add(-2 * time.Hour)
			f.applicant.Object.Metadata.CreationTimestamp = created
			f.binding.IssuedAt, f.binding.NotAfter = created.Unix()-30, created.Unix()+570
		}, nil),
	}
}

// akAttacks are what there is on the road of the AK certificate alone.
func akAttacks() []Attack {
	return []Attack{
		forged(ClassBinding, "answer-on-another-road", "The challenge was given on the road of the EK, the answer has an AK certificate.", func(f *forgery) {
			f.binding.Road, f.binding.AKName = attest.RoadEK, f.machine.public.Name()
		}, nil),
	}
}
