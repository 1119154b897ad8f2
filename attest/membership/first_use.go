package membership

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/refusal"
)

// reservation is how long a [FirstUse] reserves a name before binding it, which it does
// at once unless it dies in between.
const reservation = time.Minute

// maxFirstUseLifetime is the longest FirstUseConfig.MaxLifetime: a name rests as long, and no
// certificate can be revoked.
const maxFirstUseLifetime = 90 * 24 * time.Hour

// FirstUseConfig is what a [FirstUse] is made of. The fields of the first group
// have no default: leaving one out is an error.
type FirstUseConfig struct {
	// Registry remembers the machines. Its scope must be that of the verifier.
	Registry Registry
	// NodeExists reports whether there is a Node object of that name. A name that has a Node
	// but no record is refused, unless the inventory names the machine (csr.Machine.Identity): that
	// Node came before the registry, or its record was lost. An error means that it
	// could not find out. It may answer from a cache that is a moment behind: a Node may
	// appear after any answer.
	NodeExists func(ctx context.Context, nodeName string) (bool, error)
	// MaxLifetime is the longest lifetime that any signer of the cluster gives a client or
	// serving certificate of a node: the CA's of this SDK, and kube-controller-manager's where
	// it signs. Names of machines that are gone rest that long. It is csr.MinLifetime to 90
	// days, and not under csr.Policy.MaxLifetime if Kubernetes' own signers are served: a request
	// to them for a longer lifetime is refused.
	MaxLifetime time.Duration

	// MaxRecoveryLifetime is the same for recovery certificates, without the limit of 90 days;
	// zero means MaxLifetime. No name rests for them: anyone who has one can only ask for
	// certificates, and must attest.
	MaxRecoveryLifetime time.Duration
	// Stale answers look-ups in Registry from a cache that may be behind; nil means Registry.
	// It saves look-ups: anything it refuses is looked up in Registry. In an answer it is
	// believed only that the name is free or reserved for this very claim: what is written
	// before there is a certificate is written on that basis, and if it no longer holds, the
	// name is looked up in Registry. For OwnCA's signers the approval comes before that write.
	// A hello decides nothing, and NodeExists is not asked for one that Stale admits.
	Stale Lookups
	// OwnCA issues what this FirstUse admits, for all its signers but Kubernetes' own; nil
	// means that something else signs. A name that is verified for one of these signers is
	// only reserved; CA.Issue binds it, in one write with the record of the certificate. For
	// other signers, to whom an approval is enough, it is bound before Authorize's caller
	// admits the machine, in one write with the record of the request.
	OwnCA *csr.CA
	// OwnSignersElsewhere names signers to be treated as OwnCA's, although their CA is in
	// another process or is replaced while this one runs. Nothing here can see who signs for
	// them, so listing one vouches that each of its certificates is made by a csr.CA
	// whose process verifies the answer itself, with a FirstUse of the same registry that has
	// the signer here or in OwnCA: CA.Issue there binds the name.
	//
	// Not: a signer that something else signs for, such as Vault or cert-manager. The name is
	// free again after a minute, for any machine, while the certificate is valid.
	OwnSignersElsewhere []string
	// InsecureAllowNoMachineUID admits newcomers on attest.RoadEK for which the inventory has
	// no UID. A TPM whose vendor certified two EKs of the registry's algorithm ([Scope]) can
	// then get as many node names as it asks for with two EKs.
	InsecureAllowNoMachineUID bool
	// Slot names the Machine UID of a machine for whose node the inventory has none, such as that of
	// a slot in a pool, once its identity is known; nil names none. It is asked at hellos too, so
	// it only looks, and it says the same of a machine each time. An error that wraps
	// [attest.CheckMembership] is a refusal, any other a retry.
	//
	// From then on the inventory has the UID for the node's name, or the node gets no serving
	// certificate.
	Slot func(ctx context.Context, r *attest.Result) (machineUID string, err error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// FirstUse is trust on first use, for machines whose identity is not known beforehand: the
// first machine that proves itself under a node name is that node from then on, and no other
// machine is, as its [Registry] remembers. It cannot keep an attacker's own machine from a
// name that no machine has claimed yet, so only what the request came with (a bootstrap token)
// protects such a name.
//
// It admits a newcomer only for a client certificate requested with a bootstrap token. If the inventory
// names this very machine for the node, its record was lost, and neither the requester nor a Node
// matters; with documents, a bootstrap token is still refused where there is a Node. It
// vouches for what the inventory has for the node's name (csr.Machine), and for the provider ID that the
// evidence states (attest.Result.Details) where the inventory has none. It records the provider ID on
// which everyone who was asked agrees. At a hello it only looks;
// at an answer it writes through Result.WhenAdmitted, after everything else has been checked. A
// newcomer takes one call of Registry.Reserve and one of Bind, and verifying the same answer again
// changes nothing. The caller calls [Registry].Release when a Machine of the inventory is gone.
//
// The name of a TPM is also free, for another machine or another Machine of the inventory, once
// the last certificate that was issued for it has ended and its Node is gone; until then the same
// machine comes back to it.
//
// Where the evidence is a document (attest.RoadDocument), which anything that runs on a
// machine may get, a bound machine with a bootstrap token is admitted for a key that it has
// already been admitted for, and for no other until the operator has released or rebound it: it
// renews as the node that it is. That its last certificate has ended changes nothing, or an attacker
// who keeps a node from renewing would be the node next: a document's name is free by a release and by
// nothing else. Only kinds that find machines of the
// operator's own projects or accounts are accepted (document.KindConfig.OwnMachines).
//
// A type that embeds a FirstUse and has its own Authorize is asked through that one.
type FirstUse struct {
	c   FirstUseConfig
	own []string // the signers whose CA binds
}

// NewFirstUse checks the configuration. The error is refusal.CheckConfig, or that of the
// registry's [Scope.Check].
func NewFirstUse(c FirstUseConfig) (*FirstUse, error) {
	switch {
	case typednil.Is(c.Registry):
		return nil, refusal.Config("Registry", "", "one")
	case c.NodeExists == nil:
		return nil, refusal.Config("NodeExists", "", "a look-up of Nodes")
	case c.MaxLifetime < csr.MinLifetime || c.MaxLifetime > maxFirstUseLifetime:
		return nil, refusal.Config("MaxLifetime", c.MaxLifetime.String(), "the longest that any signer gives, "+csr.MinLifetime.String()+" to "+maxFirstUseLifetime.String())
	case c.MaxRecoveryLifetime != 0 && c.MaxRecoveryLifetime < csr.MinLifetime:
		return nil, refusal.Config("MaxRecoveryLifetime", c.MaxRecoveryLifetime.String(), "0, or "+csr.MinLifetime.String()+" or more")
	case c.Stale != nil && typednil.Is(c.Stale):
		return nil, refusal.Config("Stale", "that is a nil pointer", "one, or nil")
	}
	own, err := c.ownSigners()
	if err := cmp.Or(c.Registry.Scope().Check(), err); err != nil {
		return nil, err
	}
	c.MaxRecoveryLifetime = cmp.Or(c.MaxRecoveryLifetime, c.MaxLifetime)
	if c.Now == nil {
		c.Now = time.Now
	}
	return &FirstUse{c: c, own: own}, nil
}

// ownSigners returns the signers whose CA binds.
func (c *FirstUseConfig) ownSigners() ([]string, error) {
	ofKubernetes := func(name string) bool { return csr.ProviderOf(name) == "" }
	own := slices.DeleteFunc(c.OwnCA.SignerNames(), ofKubernetes)
	if c.OwnCA != nil && len(own) == 0 {
		return nil, refusal.Config("OwnCA", "that signs for no kind of evidence", "one that does, or nil")
	}
	if i := slices.IndexFunc(c.OwnSignersElsewhere, ofKubernetes); i >= 0 {
		return nil, refusal.Config("OwnSignersElsewhere", refusal.Quote(c.OwnSignersElsewhere[i]), "the signers of kinds of evidence, and none of Kubernetes' own")
	}
	return append(own, c.OwnSignersElsewhere...), nil
}

var errNotMade = refusal.Config("FirstUse", "", "one that NewFirstUse made")

// CheckAuthorizer refuses a FirstUse that [NewFirstUse] did not make, or whose MaxLifetime is under
// MaxExpiration of the policy; a registry of another cluster, or for a road that is not open;
// documents about every customer's machines; and on attest.RoadAK
// a profile that can name a machine by its AK (tpmcert.AKIdentity) but does not promise one AK per
// machine (OneAKPerMachine): no machine named that way could ever be admitted.
func (f *FirstUse) CheckAuthorizer(open attest.Opening) error {
	if f == nil || f.c.Registry == nil {
		return errNotMade
	}
	scope := f.c.Registry.Scope()
	if !slices.Contains(open.ClusterIDs, scope.Cluster) {
		return otherCluster(scope, open.ClusterIDs)
	}
	if open.MaxExpiration > f.c.MaxLifetime {
		return refusal.Config("MaxLifetime", f.c.MaxLifetime.String(), "MaxExpiration of the policy, "+open.MaxExpiration.String()+", or more")
	}
	n := slices.IndexFunc(open.Roads, func(o attest.OpenRoad) bool { return o.Provider == scope.provider() && o.Road == scope.Road })
	if n < 0 {
		return misfit("no machine, as road "+scope.Road.String()+" of "+scope.provider()+" is not open", "a registry of an open road")
	}
	if why := open.Roads[n].ManyIdentities; why != "" {
		return misfit(why, "one identity a machine")
	}
	return nil
}

func misfit(got, want string) error { return refuse(CheckRegistryScope, got, want) }

func otherCluster(scope Scope, ids []string) error {
	return misfit("a registry of cluster "+refusal.Quote(scope.Cluster), "one of the verifier's cluster: "+refusal.Quotes(ids))
}

// Authorize admits the machine if the registry has it under this name, or has neither. A
// refusal wraps attest.CheckMembership and the registry's check.
func (f *FirstUse) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	j, err := f.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	a := vouch(r, r.NodeName, "")
	lifetime := f.c.MaxLifetime
	if r.Purpose == csr.PurposeRecovery {
		lifetime = f.c.MaxRecoveryLifetime
	}
	if inventoryOf(r).UID == "" {
		a.MachineUID = j.claim.MachineUID
	}
	// The certificate may be issued for as long as its answer can be verified.
	a.NotAfter = f.c.Now().Add(lifetime + message.MaxAnswerAge).Truncate(time.Second)
	j.notAfter = a.NotAfter // anyone who gets the authorization may change it
	write := func(ctx context.Context) error { return j.bind(ctx, j.requested) }
	if checked := r.Checked(); checked != nil {
		requested, err := checked.Vouch(string(r.Machine), a.Grant, nil).Record(nil)
		if err != nil {
			return nil, err
		}
		requested.KeyResidence = keyResidence(r)
		j.requested = &requested
	}
	if slices.Contains(f.own, r.SignerName) {
		write = j.reserve
		err = r.WhenIssued(func(ctx context.Context, issued csr.IssuedRecord) error {
			issued.KeyResidence = keyResidence(r)
			one := *j // a signer may issue twice at once
			return refuseMember(one.bind(ctx, &issued))
		})
	}
	if err == nil {
		err = r.WhenAdmitted(func(ctx context.Context) error { return refuseMember(write(ctx)) })
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// AuthorizeHello refuses a machine that the registry does not let in under this name. It only
// looks.
func (f *FirstUse) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	_, err := f.begin(ctx, r)
	return err
}

// begin looks up whether the machine may be the node.
func (f *FirstUse) begin(ctx context.Context, r *attest.Result) (*joining, error) {
	if f == nil || f.c.Registry == nil {
		return nil, errNotMade
	}
	if err := checkScope(r, f.c.Registry.Scope()); err != nil {
		return nil, refuseMember(err)
	}
	if given := builtInLifetimeOf(r); given > f.c.MaxLifetime {
		return nil, refuse(attest.CheckMembership, "a request to "+r.SignerName+" for "+given.String(), "MaxLifetime, "+f.c.MaxLifetime.String()+", or less")
	}
	machine := inventoryOf(r)
	j := &joining{f: f, r: r, claim: Claim{NodeName: r.NodeName, Machine: r.Machine, MachineUID: machine.UID, ProviderID: r.Granted.ProviderID}}
	if j.claim.MachineUID == "" && f.c.Slot != nil {
		uid, err := f.c.Slot(ctx, r)
		if err != nil {
			return nil, err
		}
		j.claim.MachineUID = uid
	}
	hello := r.Stage != attest.StageAnswer
	if f.c.Stale == nil || j.look(ctx, f.c.Stale, !hello, true) != nil || !hello && !j.newcomer {
		if err := j.look(ctx, f.c.Registry, true, false); err != nil {
			return nil, refuseMember(err)
		}
	}
	return j, nil
}

// checkScope refuses a machine whose identity was found in a different way from those in the
// registry.
func checkScope(r *attest.Result, want Scope) error {
	if ids := clustersOf(r); !slices.Contains(ids, want.Cluster) {
		return refusal.Retry(otherCluster(want, ids)) // no verifier has called CheckAuthorizer
	}
	if got := scopeOf(r, want.Cluster); got != want {
		return refuse(CheckRegistryScope, got.String(), want.String())
	}
	if ek := r.Machine.Kind() == "ek"; ek != (r.Road == attest.RoadEK) {
		return refuse(CheckRegistryScope, string(r.Machine)+" on road "+r.Road.String(), "an identity of kind ek on road ek, and only there")
	}
	if r.ManyIdentities != "" {
		return &attest.Error{Check: CheckRegistryScope, Got: r.ManyIdentities, Want: "one identity a machine", Err: refusal.ErrRetry}
	}
	return nil
}

// refuseMember turns a registry's refusal into one of membership. What may succeed later, and
// what is not a refusal, is left as it is.
func refuseMember(err error) error {
	e, ok := errors.AsType[*attest.Error](err)
	if !ok || errors.Is(err, refusal.ErrRetry) {
		return err
	}
	switch e.Check {
	case checkRegistryName, checkRegistryMachine, CheckRegistryResting, checkRegistryUID, checkRegistryProviderID,
		checkRegistryNode, checkRegistryRequester, CheckRegistryScope:
		return &attest.Error{Check: attest.CheckMembership, Err: err}
	}
	return err
}
