package authenticator

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/kube/internal/remedies"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkDenied is the check that fails for a request that the control plane has denied, or that has failed.
const checkDenied refusal.Check = "denied"

func isDenied(err error) bool { return errors.Is(err, checkDenied) }

// A deniedError is the denial of a request, or its failure. Its text says in one sentence which request was
// refused, why, and who does what next. Any account that may deny requests writes the reason and the message.
type deniedError struct {
	request, node string
	condition     certificatesv1.CertificateSigningRequestCondition
	// filed is the request as it was denied.
	filed *certificatesv1.CertificateSigningRequest
}

// maxDenial bounds the message of a condition in the error, in bytes: the remedy comes after it.
const maxDenial = 1 << 10

// Error returns the sentence.
func (e *deniedError) Error() string {
	message := e.condition.Message
	if len(message) > maxDenial {
		message = strings.ToValidUTF8(message[:maxDenial], "") + "..."
	}
	verb := "was denied"
	if e.condition.Type == certificatesv1.CertificateFailed {
		verb = "failed after its approval"
	}
	return fmt.Sprintf("certificate request %s of node %s %s with reason %s, %s: %s", e.request, e.node, verb,
		cmp.Or(refusal.Text(e.condition.Reason), "unknown"), cmp.Or(refusal.Escape(message), "without a message"), e.remedy())
}

// Is reports whether target is the check.
func (e *deniedError) Is(target error) bool { return target == checkDenied }

// awaits reports whether the denial ends with an act of an operator on the control plane's lists and records, of which
// the controller tells the node.
func (e *deniedError) awaits() bool {
	switch remedies.Of(e.condition.Reason, e.condition.Message) {
	case remedies.AdmitMachine, remedies.ReleaseName, remedies.AddMachine, remedies.MatchMachine:
		return e.condition.Type == certificatesv1.CertificateDenied && e.filed != nil
	}
	return false
}

// remedy says who acts, and with which command.
func (e *deniedError) remedy() string {
	explain := "kubectl nodeattest explain " + e.request
	if e.condition.Type == certificatesv1.CertificateFailed {
		return "an operator looks for the account that approved it, and at the signer's log, with kubectl get csr " + e.request + " -o yaml"
	}
	switch remedies.Of(e.condition.Reason, e.condition.Message) {
	case remedies.FileAgain:
		return "the node files another request by itself; if that is late too, its administrator looks for a wrong clock, with kubelet-authenticator doctor"
	case remedies.NewChallenge:
		return "the node files another request by itself, which takes no command"
	case remedies.AdmitMachine:
		return "an operator decides whether this machine may be node " + e.node + ", with " + explain + ", which prints the command that admits it"
	case remedies.ReleaseName:
		return "an operator, if the machine that had the name is gone, releases it with kubectl delete node " + e.node + " && kubectl nodeattest release " + e.node
	case remedies.AddMachine:
		return "an operator adds the machine to the inventory, with the line that kubelet-authenticator identity -o inventory prints on this machine"
	case remedies.MatchMachine:
		return "an operator compares the inventory's entry of node " + e.node + " with the request, with " + explain
	case remedies.OwnCertificate:
		return "the node's administrator has the kubelet use the certificate of kubelet-authenticator, which kubelet-authenticator status names"
	case remedies.OtherCluster:
		return "the node's administrator corrects clusterID or the CAs of the kubeconfig, with kubelet-authenticator discover --replace"
	case remedies.MendSettings:
		return "an operator corrects the controller's configuration, with kubectl -n nodeattest-system logs deployment/node-attestation-controller"
	case remedies.OtherRequest:
		return "an operator finds the broken rules, with " + explain + ", and corrects the node's configuration or the control plane's trust"
	}
	return "an operator finds the account that denied it, with " + explain
}
