package forge

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// world is one of attesttest in which machines have TPMs, and take one road.
type world struct {
	*attesttest.World
	options worldOptions
	bench   *Bench
	ekOwner map[[message.HashSize]byte]string // the EKs on the members' list, by digest, and whose they are
	config  attest.VerifierConfig             // of the real provider
}

// worldOptions select attacks, in addition to the ones for every kind of evidence.
type worldOptions struct {
	road     attest.Road
	resident bool // TLS keys must live in the TPM
	quoted   bool // a quote over good values of PCRs 0 to 7 is demanded
	requests bool // try the attacks on requests and PEM, too
	weak     bool // try no blind changes of evidence: the provider is weak at a known place
}

func newWorld(t testing.TB, o worldOptions) *world {
	t.Helper()
	w := &world{options: o, ekOwner: map[[message.HashSize]byte]string{}, bench: &Bench{Now: time.Now().Truncate(time.Second),
		ClusterID: attesttest.ClusterID, ProviderID: attesttest.ProviderID, Bootstrap: csr.BootstrapUserPrefix + attesttest.TokenID, Quoted: o.quoted}}
	err := func() (err error) {
		defer Caught(&err)
		w.bench.CA = Must(tpmsim.NewCA(tpmsim.CAOptions{Now: func() time.Time { return w.bench.Now }}))
		w.bench.MakeKeys(nil)
		w.bench.MakeMachines()
		for name, m := range w.bench.Machines {
			w.ekOwner[Must(csr.SPKIHash(m.EK.Public))] = name
		}
		for _, ek := range w.bench.WeakEKs {
			w.ekOwner[Must(csr.SPKIHash(ek.Public))] = MachineOne
		}
		w.World = attesttest.NewWorld(t, attesttest.WorldOptions{Kind: Must(tpm.NewKind(w.trust())), Prove: w.prove, Attacks: w.attacks(), SkipBlind: o.weak})
		w.config = attest.VerifierConfig{KeyRing: Must(attest.NewStaticKeyRing(w.bench.Ring, w.bench.Retired)), Policy: w.Config.Policy,
			Authorizer: attest.AuthorizerFunc(w.authorize), Kinds: w.Config.Kinds, RequireTPMResident: o.resident, Now: w.Now}
		return nil
	}()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// trust opens the road, and says what must be quoted.
func (w *world) trust() (c tpm.KindConfig) {
	roots := []*x509.Certificate{w.bench.CA.Root()}
	if w.options.road == attest.RoadAK {
		c.AKIssuers = []tpmcert.Issuer{{Roots: roots, Profile: tpmcert.ProfileTCG()}}
	} else {
		c.EKs = Must(tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{{Roots: roots, Profile: tpmcert.EKProfileTCG()}}}))
	}
	if w.options.quoted {
		c.QuotePolicy = Must(tpm.NewPCRPolicy(w.bench.QuoteBy(w.bench.AKP256).PCRs))
	}
	return c
}

// expects says whether a machine is known by an identity or, on the road of the EK, by an EK.
func (w *world) expects(machine string, road attest.Road, identity attest.Identity, key [message.HashSize]byte) bool {
	if road == attest.RoadEK {
		return w.ekOwner[key] == machine
	}
	return string(identity) == Identity(machine)
}

// authorize admits a machine as its own node.
func (w *world) authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	m, err := w.Config.Policy.Machines(ctx, csr.Question{NodeName: r.NodeName})
	switch {
	case errors.Is(err, csr.ErrNoMachine):
		return nil, attest.NotMember("nobody")
	case err != nil:
		return nil, err
	case !w.expects(m.Name, r.Road, r.Machine, r.MachineKey):
		return nil, attest.NotMember("another machine")
	}
	a := r.Admit(attest.KnownNode(m.NodeName))
	a.ProviderID, a.DNSNames, a.IPAddresses = m.ProviderID, m.DNSNames, m.IPAddresses
	return a, nil
}

// real is the provider of package attest.
func (w *world) real(t testing.TB) csr.Provider {
	t.Helper()
	verifier, err := attest.NewVerifier(w.config)
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

// try is an attempt on a provider on a road, by the clock of the world.
func (w *world) try(ctx context.Context, p csr.Provider, road attest.Road) *Try {
	w.bench.Now = w.Now()
	return &Try{Bench: w.bench, Road: road, Challenge: func(hello *csr.Request) (*message.Challenge, error) {
		challenger, ok := p.(interface {
			Challenge(context.Context, *csr.Request) ([]byte, error)
		})
		if !ok {
			return nil, Shut("the provider has no method Challenge")
		}
		der, err := challenger.Challenge(ctx, hello)
		if err != nil {
			return nil, err
		}
		return message.ParseChallenge(der)
	}}
}

// prove makes good evidence for an applicant's request, under a challenge of our own.
func (w *world) prove(ctx context.Context, p csr.Provider, a *attesttest.Applicant) (*csr.Bundle, error) {
	by, asks := a.Object.User, a.Object.Spec
	return w.try(ctx, p, w.options.road).On(a.Machine, Join{Request: a.Request, Key: a.Key, Signer: asks.SignerName, Usages: asks.Usages,
		Username: by.Username, Groups: by.Groups}).Bundle(), nil
}

// filed is an attack that files a request with what makes evidence for it.
func (w *world) filed(class, name, what string, good func() *Asked, prove func(context.Context, csr.Provider, Join) (*csr.Bundle, error)) attesttest.Attack {
	return attesttest.Attack{Name: name, Class: class, Description: what, Make: func(ctx context.Context, p csr.Provider) (*csr.Request, error) {
		w.bench.Now = w.Now()
		asked := good()
		join := asked.Join
		join.Request, join.Key = asked.Asks(), asked.PKCS10.Key
		bundle, err := prove(ctx, p, join)
		if err != nil {
			return nil, err
		}
		return asked.Filed(bundle), nil
	}}
}

// attacks are those on TPM evidence, on one road, and honest joins with the provider's own challenge.
func (w *world) attacks() []attesttest.Attack {
	challenged := func(machine string) func(context.Context, csr.Provider, Join) (*csr.Bundle, error) {
		return func(ctx context.Context, p csr.Provider, j Join) (*csr.Bundle, error) {
			return w.try(ctx, p, w.options.road).Prove(machine, j)
		}
	}
	second := func() *Asked { a := w.bench.BootstrapAsks(); a.As(OtherNode); return a }
	closed := attest.RoadAK + attest.RoadEK - w.options.road
	attacks := []attesttest.Attack{
		w.filed("honest", "honest-client-challenged", "An honest machine joins.", w.bench.BootstrapAsks, challenged(MachineOne)),
		w.filed("honest", "honest-serving-challenged", "An honest node asks for a serving certificate.", w.bench.NodeServes, challenged(MachineOne)),
		w.filed("honest", "honest-second-machine-challenged", "Another honest machine joins.", second, challenged(MachineTwo)),
		w.filed(ClassBinding, "closed", "An honest machine goes a road on which nothing is trusted.", w.bench.BootstrapAsks,
			func(ctx context.Context, p csr.Provider, j Join) (*csr.Bundle, error) {
				return w.try(ctx, p, closed).On(MachineOne, j).Bundle(), nil
			}),
	}
	for _, a := range w.bench.LiveAttacks(w.options.road, w.options.resident) {
		attacks = append(attacks, attesttest.Attack{Name: a.Name, Class: a.Class, Description: a.What, Want: early(&a),
			Make: func(ctx context.Context, p csr.Provider) (*csr.Request, error) {
				return a.Make(w.try(ctx, p, w.options.road))
			}})
	}
	if w.options.requests {
		attacks = append(attacks, w.requestAttacks()...)
	}
	return attacks
}

// early returns the checks that may refuse an attack which can end before there is an answer.
func early(a *Live) []refusal.Check {
	if a.Early == nil {
		return nil
	}
	return append(slices.Clone(a.Early), checkNaive)
}

// requestAttacks are those on requests and their PEM, with good evidence for the changed request.
func (w *world) requestAttacks() (attacks []attesttest.Attack) {
	good := func(ctx context.Context, p csr.Provider, j Join) (*csr.Bundle, error) {
		return w.try(ctx, p, w.options.road).On(MachineOne, j).Bundle(), nil
	}
	for _, t := range w.bench.RequestTables() {
		for _, a := range t.Attacks {
			if name := a.Live(); name != "" {
				attacks = append(attacks, w.filed(ClassRequest, name, a.What, func() *Asked { asked := t.Good(); a.Change(asked); return asked }, good))
			}
		}
	}
	for _, a := range w.bench.LivePEMs(tpm.Provider + "/v1") {
		attack := w.filed(ClassRequest, a.Name, a.What, w.bench.BootstrapAsks, good)
		file := attack.Make
		attack.Make = func(ctx context.Context, p csr.Provider) (*csr.Request, error) {
			r, err := file(ctx, p)
			if err == nil {
				r.Spec.Request = []byte(a.Change(string(r.Spec.Request)))
			}
			return r, err
		}
		attacks = append(attacks, attack)
	}
	return attacks
}

// expectGotIn counts on the runner to name these attacks and no others. Blind changes are
// left to the strict providers.
func expectGotIn(t *testing.T, p csr.Provider, w *world, want []string) {
	t.Helper()
	got := attesttest.GotIn(attesttest.Try(context.Background(), p, w.World))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got in: %q\nwant:   %q", got, want)
	}
}
