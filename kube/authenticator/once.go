package authenticator

// pendingFile holds the key of the requests of a machine without evidence, until it has the
// certificate. Each name gets one certificate: a key that is lost while its request waits for the
// signer would leave the node without one. Further requests with the same key count as the same.
const pendingFile = "client.pending.key"

// another describes how a node without evidence gets another certificate.
func (c *Config) another() string {
	return "after kubectl nodeattest release " + c.NodeName + " and kubectl delete node " + c.NodeName + ", a fresh bootstrap token gets another"
}
