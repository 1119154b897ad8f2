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
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/refusal"
)

// reservation is how long a [FirstUse] reserves a name. It binds the name at once, unless the process
// ends in between.
const reservation = time.Minute

// maxFirstUseLifetime is the longest FirstUseConfig.MaxLifetime: no certificate can be revoked, and a
// name rests as long.
const maxFirstUseLifetime = 90 * 24 * time.Hour

// FirstUseConfig configures a [FirstUse]. The fields of the first group are required.
type FirstUseConfig struct {
	// Registry remembers the machines. Its scope must fit the verifier.
	Registry Registry
	// NodeExists reports whether there is a Node object of that name. A name with a Node but
	// without a record is refused, unless the inventory names the machine (csr.Machine.Identity):
	// the Node is older than the registry, or its record was lost. An error is a retry. It may read a
	// cache that is a moment behind.
	NodeExists func(ctx context.Context, nodeName string) (bool, error)
	// MaxLifetime is the longest lifetime of a node's client or serving certificate by any signer
	// of the cluster: CAs of this SDK, and kube-controller-manager. The name of a machine that is
	// gone rests that long. It is csr.MinLifetime to 90 days and, if Kubernetes' own signers are
	// served, at least the policy's: a request to them for a longer lifetime is refused.
	MaxLifetime time.Duration

	// MaxRecoveryLifetime is the same for recovery certificates, without the limit of 90 days;
	// zero means MaxLifetime. No name rests for them: with such a certificate a node can only
	// request others, and must attest.
	MaxRecoveryLifetime time.Duration
	// Stale answers look-ups from a cache of Registry that may be behind; nil means Registry. A
	// refusal is always looked up in Registry again. In an answer, Stale only decides that the name
	// is free or reserved for the same claim; the write that follows fails if that is no longer so,
	// and the name is looked up in Registry. For OwnCA's signers the approval comes before that
	// write. A hello that Stale admits gets a challenge without a call of NodeExists.
	Stale Lookups
	// OwnCA issues the certificates of all signers except Kubernetes' own; nil means that another
	// signer does. For these signers a name is only reserved when the answer is verified, and
	// CA.Issue binds it, in one write with the record of the certificate. For other signers, to
	// which an approval is enough, it is bound before the machine is admitted, in one write with
	// the record of the request.
	OwnCA *csr.CA
	// OwnSignersElsewhere are signers to be treated as OwnCA's, although their CA is in another
	// process or is replaced while this one runs. Listing one promises that each of its
	// certificates is made by a csr.CA whose process verifies the answer itself, with a FirstUse of
	// the same registry that has the signer here or in OwnCA: CA.Issue there binds the name. Nothing
	// here checks this.
	//
	// Never list a signer of another product, such as Vault or cert-manager: the name would be free
	// again after a minute, for any machine, while the certificate is valid.
	OwnSignersElsewhere []string
	// InsecureAllowNoMachineUID admits newcomers on attest.RoadEK for which the inventory has
	// no UID. A TPM whose vendor certified two EKs of the registry's algorithm ([Scope]) can
	// then get as many node names as it asks for with two EKs.
	InsecureAllowNoMachineUID bool
	// Slot returns the Machine UID of a machine for whose node the inventory has none, such as a
	// slot in a pool, once its identity is known; nil means no such machines. It is called at hellos
	// too, so it must not write, and must return the same UID each time. An error that wraps
	// [attest.CheckMembership] is a refusal, any other a retry.
	//
	// From then on the inventory must have the UID for the node's name, or the node gets no serving
	// certificate.
	Slot func(ctx context.Context, r *attest.Result) (machineUID string, err error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// FirstUse is trust on first use, for machines whose identity is not known beforehand: the first
// machine that proves its identity under a node name is that node from then on, and no other machine is,
// as its [Registry] records. A name that no machine has claimed yet is only protected by the bootstrap
// token: an attacker's machine with one can claim it.
//
// It admits a newcomer only for a client certificate requested with a bootstrap token. If the inventory
// names this machine for the node, its record was lost, and the machine is admitted whatever the
// requester, and although there is a Node; but not with a document and a bootstrap token if there is a
// Node. Its grant has the inventory's values for the node (csr.Machine), and the evidence's provider ID
// (attest.Result.Details) if the inventory has none. The record has the provider ID on which all
// authorizers agree. It only reads at a hello; at an answer it writes through Result.WhenAdmitted, after
// every other check. A newcomer takes one call of Registry.Reserve and one of Bind; verifying the same
// answer again writes nothing. The caller calls [Registry].Release when a Machine of the inventory is
// gone.
//
// The name of a TPM is also free, for another machine or another Machine of the inventory, once the last
// certificate issued for it has ended and its Node is gone; until then the same machine can come back.
//
// A document (attest.RoadDocument) can be read by any process on a machine. So with a bootstrap token a
// bound machine is admitted only for a key that was admitted before; for another one an operator has to
// release or rebind the node. The node itself renews with its certificate. The end of its last
// certificate frees nothing, or an attacker that keeps a node from renewing could become it: a
// document's name is freed only by a release. Only kinds for machines of the operator's own projects or
// accounts are accepted (document.KindConfig.OwnMachines).
//
// If a type embeds a FirstUse and has its own Authorize, that one is called.
type FirstUse struct {
	c   FirstUseConfig
	own []string // signers for which CA.Issue binds the name
}

// NewFirstUse checks the configuration. The error is refusal.CheckConfig, or that of the
// registry's [Scope.Check].
func NewFirstUse(c FirstUseConfig) (*FirstUse, error) {
	switch {
	case c.Registry == nil:
		return nil, refusal.Config("Registry", "", "one")
	case c.NodeExists == nil:
		return nil, refusal.Config("NodeExists", "", "a look-up of Nodes")
	case c.MaxLifetime < csr.MinLifetime || c.MaxLifetime > maxFirstUseLifetime:
		return nil, refusal.Config("MaxLifetime", c.MaxLifetime.String(), "the longest that any signer gives, "+csr.MinLifetime.String()+" to "+maxFirstUseLifetime.String())
	case c.MaxRecoveryLifetime != 0 && c.MaxRecoveryLifetime < csr.MinLifetime:
		return nil, refusal.Config("MaxRecoveryLifetime", c.MaxRecoveryLifetime.String(), "0, or "+csr.MinLifetime.String()+" or more")
	}
	own, err := c.ownSigners()
	if err := cmp.Or(c.Registry.Scope().Check(), err); err != nil {
		return nil, err
	}
	c.MaxRecoveryLifetime = cmp.Or(c.MaxRecoveryLifetime, c.MaxLifetime)
	c.Now = wallclock.Or(c.Now)
	return &FirstUse{c: c, own: own}, nil
}

// ownSigners returns the signers for which CA.Issue binds the name.
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
// that of the policy; a registry of another cluster, or for a road that is not open;
// documents about every customer's machines; and on attest.RoadAK a profile that can identify a
// machine by its AK (tpmcert.AKIdentity) but does not promise one AK per machine (OneAKPerMachine).
func (f *FirstUse) CheckAuthorizer(open attest.Opening) error {
	if f == nil || f.c.Registry == nil {
		return errNotMade
	}
	scope := f.c.Registry.Scope()
	if !slices.Contains(open.ClusterIDs, scope.Cluster) {
		return otherCluster(scope, open.ClusterIDs)
	}
	if open.MaxLifetime > f.c.MaxLifetime {
		return refusal.Config("MaxLifetime", f.c.MaxLifetime.String(), "that of the policy, "+open.MaxLifetime.String()+", or more")
	}
	n := slices.IndexFunc(open.Roads, func(o attest.OpenRoad) bool { return o.Provider == scope.provider() && o.Road == scope.Road })
	if n < 0 {
		return misfit("a registry of road "+scope.Road.String()+" of "+scope.provider()+", which is not open", "a registry of an open road")
	}
	if why := open.Roads[n].ManyIdentities; why != "" {
		return misfit(why, "one identity a machine")
	}
	return nil
}

func misfit(got, want string) error { return CheckRegistryScope.Refuse(got, want) }

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
	j.notAfter = a.NotAfter // callers may change the authorization
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

// AuthorizeHello refuses a machine that the registry does not admit under this name. It writes nothing.
func (f *FirstUse) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	_, err := f.begin(ctx, r)
	return err
}

// begin checks, without writing, whether the machine may be the node.
func (f *FirstUse) begin(ctx context.Context, r *attest.Result) (*joining, error) {
	if f == nil || f.c.Registry == nil {
		return nil, errNotMade
	}
	if err := checkScope(r, f.c.Registry.Scope()); err != nil {
		return nil, refuseMember(err)
	}
	if given := checkedOf(r).BuiltInLifetime(); given > f.c.MaxLifetime {
		return nil, attest.CheckMembership.Refuse("a request to "+r.SignerName+" for "+given.String(), "MaxLifetime, "+f.c.MaxLifetime.String()+", or less")
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

// checkScope refuses a machine whose identity is outside the registry's scope.
func checkScope(r *attest.Result, want Scope) error {
	if ids := clustersOf(r); !slices.Contains(ids, want.Cluster) {
		return refusal.Retry(otherCluster(want, ids)) // no verifier has called CheckAuthorizer
	}
	if got := scopeOf(r, want.Cluster); got != want {
		return CheckRegistryScope.Refuse(got.String(), want.String())
	}
	if ek := r.Machine.Kind() == "ek"; ek != (r.Road == attest.RoadEK) {
		return CheckRegistryScope.Refuse(string(r.Machine)+" on road "+r.Road.String(), "an identity of kind ek on road ek, and only there")
	}
	if r.ManyIdentities != "" {
		return &attest.Error{Check: CheckRegistryScope, Got: r.ManyIdentities, Want: "one identity a machine", Err: refusal.ErrRetry}
	}
	return nil
}

// refuseMember turns a registry's refusal into one of membership. Retries and other errors are returned
// unchanged.
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
