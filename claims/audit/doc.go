// Package audit follows a credential through kube-apiserver's audit log to the credential with
// which it was requested, and so on: from a pod's token to the certificate of the node that asked
// for it (KEP-4193, story 2).
//
// kube-apiserver names each credential in the events of the requests that it authenticates, in the
// user's extra "authentication.kubernetes.io/credential-id": "JTI=" and the ID of a token, or
// "X509SHA256=" and the SHA-256 of a client certificate. The event of a TokenRequest names the
// token that was issued, in the annotation "authentication.kubernetes.io/issued-credential-id".
// [Trace] follows these two; [Chain.Node] says where the chain ends.
//
// # The log
//
// A log is a file of --audit-log-path: one event of audit.k8s.io/v1, or one EventList as the
// webhook gets it, on each line, in any order. The audit policy must log the creation of
// serviceaccounts/token at level Metadata or above, and not omit the stage ResponseComplete.
// kube-apiserver names tokens in its log from release 1.30 on. Each API server of a cluster has a
// log of its own: give the logs of all servers, with the files that were rotated.
//
// The logs are read once for each credential of the chain. Memory depends on the length of the
// chain and the longest line, not on the size of the log. Lines that cannot be read are counted.
//
// # Trust
//
// An audit log is not signed: the chain is as true as the log. [Chain.Node] refuses a log in which two
// events claim to have issued one token, or a token was used before it was issued or by another
// account. The client chooses its user agent and all source addresses but the last.
package audit
