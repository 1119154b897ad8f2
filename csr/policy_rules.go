package csr

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/internal/roca"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// requestRules need the PKCS#10 request as well.
var requestRules = []rule{
	{CheckAttestationProvider, nil, func(x *run) {
		evidence := x.out.bundle.Provider
		name, _, _ := strings.Cut(evidence, "/")
		switch {
		case x.out.provider == name || x.out.provider == "": // the same, or one of Kubernetes' signers, which select no provider
		case x.out.provider == providerInsecure && name == "":
		case x.out.provider == providerInsecure:
			x.refuse(refusal.Quote(evidence), "no evidence")
		case evidence == "":
			x.refuse("a request without evidence", "evidence for provider "+x.out.provider)
		default:
			x.refuse(refusal.Quote(evidence), "evidence for provider "+x.out.provider)
		}
	}},
	{checkSubjectCommonName, known, func(x *run) {
		prefix := purposes[x.out.purpose].prefix
		if _, fault := x.one(oid.CommonName); fault != "" {
			x.refuse(fault, "one common name, "+prefix+" and a node name")
			return
		}
		name, ok := x.out.pkcs10.CSR.Subject.CommonName, false // of the only common name
		if x.out.nodeName, ok = nodeNameAfter(prefix, name); !ok {
			x.refuse(refusal.Quote(name), prefix+" and "+names.WantNode(strings.TrimPrefix(name, prefix)))
		}
	}},
	{checkSubjectOrganization, known, func(x *run) {
		organization := purposes[x.out.purpose].organization
		name, fault := x.one(oid.Organization)
		if fault != "" || string(name) != organization {
			x.refuse(cmp.Or(fault, refusal.Quote(string(name))), "one organization, "+organization)
		}
	}},
	{checkSubjectExtraRDN, nil, func(x *run) {
		for i := range x.out.pkcs10.subject {
			switch id := x.out.pkcs10.subject[i].Type; id {
			case oid.CommonName, oid.Organization:
			case oid.KubernetesUID:
				x.refuse("a user's UID ("+id.String()+")", "CN and O only")
			default:
				x.refuse("attribute "+id.String(), "CN and O only")
			}
		}
	}},
	{checkSubjectMultiValue, nil, func(x *run) {
		subject := x.out.pkcs10.subject
		if n := len(subject); n > 0 && subject[n-1].RDN < n-1 { // RDNs count from 0, and none is empty
			x.refuse("several attributes in one RDN", "one attribute in each")
		}
	}},
	{checkRequesterOtherNode, nil, func(x *run) {
		own := x.out.requester.NodeName
		if own != "" && x.out.nodeName != "" && own != x.out.nodeName {
			x.refuse(refusal.Quote(x.out.nodeName), "the requester's own node, "+own)
		}
	}},
	{checkAttributeNotAllowed, nil, func(x *run) {
		for _, id := range x.out.pkcs10.OtherAttributes {
			x.refuse("attribute "+id.String(), "extensionRequest only")
		}
	}},
	{checkExtensionNotAllowed, nil, func(x *run) {
		for _, e := range x.out.pkcs10.CSR.Extensions {
			isFlag := x.policy.Flag != nil && e.Id.Equal(x.policy.Flag)
			if !isFlag && !oid.KubernetesNodeProviderIdentifier.Equal(e.Id) && !oid.SubjectAltName.Equal(e.Id) { // judged by the san- rules
				x.refuse("extension "+e.Id.String(), "provider ID and, for serving, SANs")
			}
		}
	}},
	{checkFlag, nil, (*run).checkFlag},
	{checkKeyType, nil, func(x *run) {
		switch key := x.out.pkcs10.CSR.PublicKey.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey:
		default:
			x.refuse(fmt.Sprintf("%T", key), "RSA or ECDSA")
		}
	}},
	{checkKeyStrength, nil, (*run).checkKeyStrength},
}

// one returns the value of the subject's only attribute of a type. If it has no such attribute, or more
// than one, or one that is not text, it says so instead.
func (x *run) one(id oid.OID) (value []byte, fault string) {
	var tag cryptobyteasn1.Tag
	count := 0
	for _, a := range x.out.pkcs10.subject {
		if a.Type == id {
			value, tag = a.Value, cryptobyteasn1.Tag(a.Tag)
			count++
		}
	}
	switch {
	case count != 1:
		return nil, strconv.Itoa(count) + " of them"
	case tag == cryptobyteasn1.UTF8String, tag == cryptobyteasn1.PrintableString, tag == cryptobyteasn1.IA5String:
		return value, ""
	}
	return nil, "no text (tag " + strconv.Itoa(int(tag)) + ")"
}

// checkFlag refuses a malformed flag extension ([flagExtension]), and a missing one if the policy
// requires it. A request has one at most.
func (x *run) checkFlag() {
	flag, extensions := x.policy.Flag, x.out.pkcs10.CSR.Extensions
	i := slices.IndexFunc(extensions, func(e pkix.Extension) bool { return e.Id.Equal(flag) })
	switch {
	case flag == nil || i < 0 && !x.policy.RequireFlag:
	case i < 0:
		x.refuse("no flag", "extension "+flag.String())
	case extensions[i].Critical:
		x.refuse("a critical flag extension", "one that is not critical")
	case !bytes.Equal(extensions[i].Value, flagTrue):
		x.refuse("value "+refusal.Hex(extensions[i].Value), "DER TRUE")
	}
}

func (x *run) checkKeyStrength() {
	switch key := x.out.pkcs10.CSR.PublicKey.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxPolicyRSABit {
			x.refuse(strconv.Itoa(bits)+" bits", strconv.Itoa(minRSABits)+" to "+strconv.Itoa(maxPolicyRSABit))
		}
		if key.E != 65537 {
			x.refuse("exponent "+strconv.Itoa(key.E), "65537")
		}
		if key.N.Bit(0) == 0 {
			x.refuse("an even modulus", "a product of two primes")
		}
		if roca.Vulnerable(key.N) {
			x.refuse("a modulus with the fingerprint of CVE-2017-15361", "one that cannot be factored")
		}
	case *ecdsa.PublicKey:
		if !slices.Contains(policyCurves, key.Curve) {
			x.refuse("curve "+key.Curve.Params().Name, "P-256 or P-384")
		}
	}
}

// minExpirationSeconds is the minimum that kube-apiserver accepts
// (pkg/apis/certificates/validation), and minExpiration is the same.
const (
	minExpirationSeconds = 600
	minExpiration        = minExpirationSeconds * time.Second
)

// objectRules need only the object's metadata, spec and status.
var objectRules = []rule{
	{CheckRequestClosed, nil, func(x *run) {
		for _, fault := range x.request.closed() {
			x.refuse(fault, "an open request")
		}
	}},
	{CheckSignerName, nil, (*run).checkSignerName},
	{checkRequestUsername, nil, func(x *run) {
		var err error
		x.out.requester, err = requesterOf(x.out.username)
		x.refuseErr(err)
	}},
	{checkRequestGroups, nil, func(x *run) {
		if x.out.requester.Class != 0 { // otherwise it is unknown which groups the user should have
			x.refuseErr(x.out.requester.readGroups(x.request.User.Groups))
		}
	}},
	{checkRequesterPurpose, known, func(x *run) {
		class := x.out.requester.Class
		if class == 0 || class.mayAsk(x.out.purpose, x.out.provider) {
			return
		}
		want := "what the class may ask for"
		if x.out.provider == providerInsecure {
			want = "client certificates for bootstrap requesters only: the insecure signer does not rotate"
		}
		x.refuse("a "+x.out.purpose.String()+" certificate for a "+class.String()+" requester", want)
	}},
	{checkUsages, known, func(x *run) {
		asked := x.request.Spec.Usages
		x.out.keyEncipherment = slices.Contains(asked, usageKeyEncipherment)
		needed := x.out.purpose.Usages(x.out.keyEncipherment)
		if len(asked) != len(needed) || !subset(needed, asked) {
			x.refuse(refusal.Quotes(asked), strings.Join(x.out.purpose.Usages(false), ", ")+", perhaps "+usageKeyEncipherment)
		}
	}},
	{checkExpiration, nil, (*run).checkExpiration},
}

// closed says why nothing can be decided about a request any more.
func (r *Request) closed() []string {
	var faults []string
	if r.Metadata.DeletionTimestamp != nil {
		faults = append(faults, "a request that is being deleted")
	}
	for _, final := range [...]string{ConditionDenied, ConditionFailed} {
		if r.HasCondition(final) {
			faults = append(faults, "condition "+final)
		}
	}
	if len(r.Status.Certificate) > 0 {
		faults = append(faults, "a request with a certificate")
	}
	return faults
}

// checkSignerName reads the signer's name. A hello is filed under the challenge signer of
// the provider that the target selects; Kubernetes' own signers select none.
func (x *run) checkSignerName() {
	target, filed := x.out.signerName, x.out.filedUnder
	var want string
	x.out.purpose, x.out.provider, want = parseSignerName(target)
	challenged := challengedProvider(filed)
	switch {
	case x.out.purpose == 0:
		x.refuse(refusal.Quote(target), want)
	case !slices.Contains(x.policy.SignerNames, target):
		x.refuse(refusal.Quote(target), "a signer that this policy serves")
	case filed != target && (challenged == "" || x.out.provider != "" && challenged != x.out.provider):
		x.refuse(refusal.Quote(filed), target+", or its challenge signer")
	}
}

func (x *run) checkExpiration() {
	asked := x.request.Spec.ExpirationSeconds
	if asked != nil && *asked < minExpirationSeconds {
		x.refuse(strconv.Itoa(int(*asked))+" s", "600 s or more")
		return
	}
	if asked != nil {
		x.out.lifetime = time.Duration(*asked) * time.Second
	}
	if x.out.purpose == 0 || x.out.provider != "" {
		return // our own signers cap the lifetime
	}
	longest := x.policy.maxLifetime()
	x.out.given, x.out.longest = cmp.Or(x.out.lifetime, x.policy.BuiltInSignerDuration), longest
	want := "at most " + strconv.Itoa(int(longest/time.Second)) + " s"
	if asked == nil && x.policy.BuiltInSignerDuration == 0 {
		x.refuse("no expirationSeconds", want)
	}
	if x.out.lifetime > longest {
		x.refuse(strconv.Itoa(int(*asked))+" s", want)
	}
}

// findMachine looks up the machine if the request names a node. It reports one that the
// inventory is certain not to have.
func (x *run) findMachine() {
	if x.out.nodeName == "" {
		return
	}
	machine, err := x.policy.Machines(x.ctx, Question{ClusterIDs: x.policy.ClusterIDs, NodeName: x.out.nodeName, Request: x.request})
	switch {
	case err == nil && machine != nil:
		x.out.machine, x.out.found = *machine, true
	case errors.Is(err, ErrNoMachine) && !undecided(err):
		x.refuseErr(&Error{Check: CheckMachineUnknown,
			Got: "node " + refusal.Quote(x.out.nodeName), Want: "the name of a known machine", Err: noMachine{err}})
	default:
		x.cannotDecide(cmp.Or(err, errNothing))
	}
}

// noMachine is an inventory's answer that there is no machine. What else it says is for those
// who run the cluster ([Decision.Detail]), and not for the requester.
type noMachine struct{ said error }

func (noMachine) Error() string   { return ErrNoMachine.Error() }
func (e noMachine) Unwrap() error { return e.said }

// errNothing says that a callback gave neither an answer nor an error.
var errNothing = errors.New("the callback returned nothing")

// machineRules also need the machine, if there is one.
var machineRules = []rule{
	{checkProviderIDMissing, nil, func(x *run) {
		if x.policy.RequireProviderID && x.out.pkcs10.ProviderID == "" {
			x.refuse("no provider ID", "one, which kubelet-authenticator has from its field providerID")
		}
	}},
	{CheckMachineUnknown, nil, (*run).findMachine},
	{CheckMachineNotReady, nil, func(x *run) {
		if m := &x.out.machine; x.out.found && !m.BootstrapReady && x.out.requester.Class == RequesterBootstrap {
			x.refuse("machine "+refusal.Quote(m.Name)+" that is not ready to bootstrap", "a ready one")
		}
	}},
	{CheckMachineOtherNode, nil, func(x *run) {
		if m := &x.out.machine; x.out.found && m.NodeName != "" && m.NodeName != x.out.nodeName {
			x.refuse("machine "+refusal.Quote(m.Name)+" of node "+refusal.Quote(m.NodeName), "the machine of node "+x.out.nodeName)
		}
	}},
	{CheckProviderIDMismatch, nil, func(x *run) {
		x.refuseErr(x.out.machine.sameProviderID(x.out.pkcs10.ProviderID))
	}},
	{CheckSANNotOwn, nil, func(x *run) {
		if m := &x.out.machine; x.out.found {
			for _, san := range x.out.sansBeside(m.DNSNames, m.IPAddresses) {
				x.refuse(san, "a name or address of machine "+refusal.Quote(m.Name))
			}
		}
	}},
	{CheckCredential, nil, (*run).checkCredential},
}

func (x *run) checkCredential() {
	if x.out.signerName != SignerKubeletServing || x.out.nodeName == "" {
		return
	}
	const want = "a client certificate that was issued to this node through attestation"
	id := x.out.credentialID
	if id == "" {
		x.refuse("no credential ID", want)
		return
	}
	record, err := x.policy.IssuedRecord(x.ctx, id, x.request)
	switch {
	case err == nil && record.ClientOf(x.out.nodeName, id):
		x.out.record = new(*record)
	case err == nil && record != nil:
		x.refuse(refusal.Quote(id)+" of node "+refusal.Quote(record.NodeName), want)
	case errors.Is(err, ErrNoRecord) && !undecided(err):
		x.refuse(refusal.Quote(id)+", which is not recorded", want)
	default:
		x.cannotDecide(cmp.Or(err, errNothing))
	}
}
