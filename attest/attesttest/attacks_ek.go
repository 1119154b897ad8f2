package attesttest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"math/big"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
)

// roadEKPrefix begins the names of attacks on the road of the EK.
const roadEKPrefix = "ek-road-"

// onRoad has attacks go a road.
func onRoad(road attest.Road, attacks []Attack) []Attack {
	for i := range attacks {
		a, how := &attacks[i], attacks[i].make
		if road == attest.RoadEK {
			a.Name, a.Description = roadEKPrefix+a.Name, "On the road of the EK: "+a.Description
		}
		a.make = func(ctx context.Context, at *attempt) (*csr.Request, error) {
			again := *at
			again.road = road
			return how(ctx, &again)
		}
	}
	return attacks
}

// closedRoad is an honest machine on a road that the provider does not go.
func closedRoad(road attest.Road) []Attack {
	return onRoad(road, []Attack{asked(ClassBinding, "closed", "An honest machine goes a road on which nothing is trusted.", wish{})})
}

// presentEK has the answer be of another EK, and the challenge too.
func (f *forgery) presentEK(key crypto.PublicKey, chain [][]byte) {
	f.chain = chain
	f.binding.MachineKey, f.err = csr.SPKIHash(key)
}

// presentBareEK sends an EK without its certificate, beside the chain if there is one.
func (f *forgery) presentBareEK(key crypto.PublicKey) {
	f.ekPublic, f.err = csr.CanonicalSPKI(key)
}

// ekAttacks are what there is on the road of the EK alone.
func ekAttacks() []Attack {
	bound := func(name, what string, change func(*forgery)) Attack {
		return forged(ClassBinding, name, what, change, nil)
	}
	weak := func(name, what string) Attack {
		return bound(name, what, func(f *forgery) {
			key := f.world.weakEKs[name]
			chain, err := certifyEK(f.world.issuer, key, nil)
			f.presentEK(key, chain)
			f.err = errors.Join(f.err, err)
		})
	}
	return []Attack{
		bound("challenge-of-the-ak-road", "The challenge was given on the road of the AK certificate, where its secret is no secret.", func(f *forgery) {
			f.binding.Road, f.binding.AKName = attest.RoadAK, nil
		}),
		bound("answer-of-another-ak", "The challenge's credential was made for another AK.", func(f *forgery) {
			f.binding.AKName = f.world.machines[MachineTwo].public.Name()
		}),
		bound("answer-of-another-ek", "The challenge's credential was made for another EK of the same TPM.", func(f *forgery) {
			f.binding.MachineKey, f.err = csr.SPKIHash(f.machine.second.Public())
		}),
		bound("second-ek-of-one-tpm", "Everything is for another EK of machine-1's TPM, which is not the one that is expected.", func(f *forgery) {
			f.presentEK(f.machine.second.Public(), f.machine.secondChain)
		}),
		bound("two-sources-of-the-ek", "The EK certificate is machine-1's; an EK beside it, for which the challenge was given, is a stranger's.", func(f *forgery) {
			stranger := f.world.machines[Stranger].ek.Public()
			f.presentEK(stranger, f.chain)
			f.presentBareEK(stranger)
		}),
		bound("ek-without-certificate", "The EK comes without a certificate, and is on no list.", func(f *forgery) {
			f.chain = nil
			f.presentBareEK(f.machine.ek.Public())
		}),
		bound("ak-certificate-as-ek-certificate", "An AK and its certificate stand in place of the EK's.", func(f *forgery) {
			f.presentEK(f.machine.key.Public(), f.machine.chain)
		}),
		weak(weakROCA, "The expected EK is one of Infineon's whose private keys can be computed."),
		weak(weakSize, "The expected EK has 1024 bits."),
		weak(weakExponent, "The expected EK has the exponent 3, as no TPM makes them."),
	}
}

// The weak EKs of machine-1, by the names of their attacks.
const (
	weakROCA     = "ek-roca"
	weakSize     = "ek-too-small"
	weakExponent = "ek-exponent-3"
)

// makeWeakEKs makes public keys; nobody has their private ones.
func (w *World) makeWeakEKs() error {
	modulus := func(bits int) *big.Int {
		b := make([]byte, bits/8)
		_, _ = rand.Read(b) // never fails
		b[0], b[len(b)-1] = b[0]|0x80, b[len(b)-1]|1
		return new(big.Int).SetBytes(b)
	}
	// The flawed moduli are powers of 65537 by each of many small primes; 1 is one.
	primes := big.NewInt(1)
	for _, p := range []int64{11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157} {
		primes.Mul(primes, big.NewInt(p))
	}
	roca := modulus(2048)
	roca.Sub(roca, new(big.Int).Mod(roca, primes))
	if roca.Add(roca, big.NewInt(1)); roca.Bit(0) == 0 {
		roca.Add(roca, primes)
	}
	w.weakEKs = map[string]*rsa.PublicKey{
		weakROCA:     {N: roca, E: 65537},
		weakSize:     {N: modulus(1024), E: 65537},
		weakExponent: {N: modulus(2048), E: 3},
	}
	for _, key := range w.weakEKs {
		if err := w.expectEK(key, MachineOne); err != nil {
			return err
		}
	}
	return nil
}

// expectEK has the members' list name an EK for a machine.
func (w *World) expectEK(key crypto.PublicKey, machine string) error {
	digest, err := csr.SPKIHash(key)
	if err != nil {
		return err
	}
	w.ekOwner[digest] = machine
	return nil
}

// thief is who goes through the provider's own challenge with what is not all his: he
// has TPMs, and which objects are in them.
type thief struct {
	eks   []*ecdsa.PrivateKey
	names [][]byte
}

// open opens a challenge with one of his TPMs.
func (t *thief) open(c *attest.Challenge) ([]byte, error) {
	if c.Credential == nil {
		return c.Clear, nil
	}
	var failed error
	for _, ek := range t.eks {
		for _, name := range t.names {
			secret, err := openCredential(ek, name, c.Credential)
			if err == nil {
				return secret, nil
			}
			failed = err
		}
	}
	return nil, failed
}

// stolen is an attack by a thief: he says hello as f, which change makes of the honest
// machine-1, and answers if he can open what he gets.
func stolen(name, what string, change func(*forgery) *thief) Attack {
	return Attack{Name: name, Class: ClassBinding, Description: what, make: func(ctx context.Context, a *attempt) (*csr.Request, error) {
		applicant, err := a.applicant(wish{})
		if err != nil {
			return nil, err
		}
		f := a.newForgery(a.machines[MachineOne], applicant)
		t := change(f)
		c, err := a.challenge(ctx, applicant, f)
		if err != nil {
			return nil, err
		}
		secret, err := t.open(c)
		if err != nil {
			return nil, err
		}
		bundle, err := a.answer(f, c, secret)
		if err != nil {
			return nil, err
		}
		return file(applicant, bundle, nil, nil)
	}}
}

// credentialAttacks want the secret of a credential that is not for them.
func credentialAttacks() []Attack {
	return []Attack{
		stolen("credential-of-another-machine", "A stranger with a TPM of its own shows machine-1's EK certificate.", func(f *forgery) *thief {
			return f.standIn(f.world.machines[Stranger])
		}),
		stolen("credential-for-an-ek-beside-the-certificate", "A stranger shows machine-1's EK certificate, and its own EK beside it.", func(f *forgery) *thief {
			t := f.standIn(f.world.machines[Stranger])
			f.presentBareEK(t.eks[0].Public())
			return t
		}),
		stolen("credential-for-an-ak-in-software", "Who has machine-1's TPM says of a key in software that it is an AK in it.", func(f *forgery) *thief {
			t := &thief{eks: []*ecdsa.PrivateKey{f.machine.ek}, names: [][]byte{f.machine.public.Name()}}
			software := *f.machine
			scheme := tpm.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256}
			if software.key, f.err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); f.err != nil {
				return t
			}
			if software.public, f.err = publicArea(&software.key.PublicKey, akAttributes, scheme); f.err != nil {
				return t
			}
			// What the TPM would load of it, and so open a credential for.
			loaded, err := publicArea(&software.key.PublicKey, softwareAttributes|tpm.AttributeSensitiveDataOrigin, scheme)
			if f.err = err; err != nil {
				return t
			}
			f.machine, f.akPublic = &software, software.public.Raw
			t.names = append(t.names, loaded.Name())
			return t
		}),
	}
}

// standIn puts another machine's AK in the place of this one's. The certificates stay.
func (f *forgery) standIn(m *machine) *thief {
	f.machine, f.akPublic = m, m.public.Raw
	return &thief{eks: []*ecdsa.PrivateKey{m.ek}, names: [][]byte{m.public.Name()}}
}
