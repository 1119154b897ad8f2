package csr

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/refusal"
)

// The names under which Kubernetes, and this SDK, know a node. They are fixed:
// RBAC, the node authorizer and kube-apiserver's admission compare them byte for
// byte.
const (
	// NodeUserPrefix stands before a node's name in its user name, which is also
	// the common name of its certificates.
	NodeUserPrefix = "system:node:"
	// NodesGroup is the group of all nodes, and the one organization of their
	// certificates.
	NodesGroup = "system:nodes"
	// RecoveryUserPrefix stands before a node's name in the user name of its
	// recovery certificate, which may ask for a new client certificate and nothing
	// else.
	RecoveryUserPrefix = "nodeattest:recovery:"
	// RecoveryGroup is the one organization of recovery certificates.
	RecoveryGroup = "nodeattest:recovery"
	// BootstrapUserPrefix stands before a bootstrap token's id in the user name of
	// who comes with that token.
	BootstrapUserPrefix = "system:bootstrap:"
	// BootstrappersGroup is the group of all who come with a bootstrap token. A
	// token's own groups begin with this name and a colon.
	BootstrappersGroup = "system:bootstrappers"
	// AuthenticatedGroup is the group of everybody whom kube-apiserver has
	// authenticated.
	AuthenticatedGroup = "system:authenticated"
)

// SubjectNames returns the one common name and the one organization that a
// certificate for this purpose and node has, in a request and when issued. Both
// are "" where the purpose is none of the three or the name is no node name.
func SubjectNames(purpose Purpose, nodeName string) (commonName, organization string) {
	subject, known := purposes[purpose]
	if !known || !nodename.Valid(nodeName) {
		return "", ""
	}
	return subject.prefix + nodeName, subject.organization
}

// nodeNameAfter cuts the prefix off a user name or common name. It returns "" and
// false where what is left is no node name.
func nodeNameAfter(prefix, name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok || !nodename.Valid(rest) {
		return "", false
	}
	return rest, true
}

// RequesterClass says who files a request, and so what may be asked for. The zero
// value is nobody and may ask for nothing.
//
//	class      user name                   groups                                client  serving  recovery
//	bootstrap  system:bootstrap:<id>       system:bootstrappers, those below it  yes     no       no
//	node       system:node:<name>          system:nodes                          own     own      own
//	recovery   nodeattest:recovery:<name>  nodeattest:recovery                   own     no       no
//
// Every class has system:authenticated as well, and no group beside these. Under
// [SignerClientInsecure] only the bootstrap class may ask: that provider does not
// rotate certificates.
type RequesterClass int

// The three classes.
const (
	// RequesterBootstrap comes with a bootstrap token. It has no node name of its
	// own, so which machine it is decides what name it gets.
	RequesterBootstrap RequesterClass = iota + 1
	// RequesterNode comes with a node's client certificate and asks for that very
	// node.
	RequesterNode
	// RequesterRecovery comes with a node's recovery certificate and asks for a
	// client certificate of that very node.
	RequesterRecovery
)

// String returns "bootstrap", "node", "recovery", or "requester(<number>)".
func (c RequesterClass) String() string {
	return nameOf("requester", int(c), "", "bootstrap", "node", "recovery")
}

// Requester is who files a request, read from spec.username.
type Requester struct {
	// Class is the kind of requester.
	Class RequesterClass
	// NodeName is the node whose certificate the requester came with; "" for
	// RequesterBootstrap.
	NodeName string
	// TokenID is the public half of the bootstrap token, six bytes of a-z and 0-9;
	// "" for the other classes.
	TokenID string
}

// RequesterOf reads spec.username and spec.groups, in any order. The error is a
// [*Error]: of [CheckRequestUsername], or, for a user name of one of the three
// forms, of [CheckRequestGroups].
//
// The groups are held to be exactly those of the class: a certificate with
// O=system:nodes gives system:nodes, kube-apiserver adds system:authenticated, and
// a bootstrap token adds groups below system:bootstrappers: only. Anything else
// means that somebody is more than a node, or an authenticator that this SDK does
// not know.
func RequesterOf(username string, groups []string) (Requester, error) {
	q, err := requesterOf(username)
	if err == nil {
		err = checkGroups(q.Class, groups)
	}
	if err != nil {
		return Requester{}, err
	}
	return q, nil
}

// requesterOf reads the user name alone.
func requesterOf(username string) (Requester, error) {
	if name, ok := nodeNameAfter(NodeUserPrefix, username); ok {
		return Requester{Class: RequesterNode, NodeName: name}, nil
	}
	if name, ok := nodeNameAfter(RecoveryUserPrefix, username); ok {
		return Requester{Class: RequesterRecovery, NodeName: name}, nil
	}
	if id, ok := strings.CutPrefix(username, BootstrapUserPrefix); ok && validTokenID(id) {
		return Requester{Class: RequesterBootstrap, TokenID: id}, nil
	}
	return Requester{}, &Error{Check: CheckRequestUsername, Got: refusal.Quote(username),
		Want: "system:bootstrap:<token id>, system:node:<name> or nodeattest:recovery:<name>"}
}

func validTokenID(id string) bool {
	return len(id) == 6 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// classGroups are the groups that everybody of a class is in. It is never written.
var classGroups = map[RequesterClass]string{
	RequesterBootstrap: BootstrappersGroup, RequesterNode: NodesGroup, RequesterRecovery: RecoveryGroup,
}

// checkGroups names the first group that is missing or too many.
func checkGroups(class RequesterClass, groups []string) error {
	own := []string{classGroups[class], AuthenticatedGroup}
	for _, needed := range own {
		if !slices.Contains(groups, needed) {
			return &Error{Check: CheckRequestGroups, Got: strconv.Itoa(len(groups)) + " groups without it", Want: needed}
		}
	}
	for _, g := range groups {
		if !slices.Contains(own, g) && (class != RequesterBootstrap || !strings.HasPrefix(g, BootstrappersGroup+":")) {
			return &Error{Check: CheckRequestGroups, Got: refusal.Quote(g), Want: "the groups of a " + class.String() + " requester only"}
		}
	}
	return nil
}

// mayAsk says whether the class may ask for a certificate of this purpose from a
// signer that selects this provider.
func (c RequesterClass) mayAsk(purpose Purpose, provider string) bool {
	if provider == ProviderInsecure {
		return c == RequesterBootstrap // it has client certificates only
	}
	return c == RequesterNode || purpose == PurposeClient && (c == RequesterBootstrap || c == RequesterRecovery)
}
