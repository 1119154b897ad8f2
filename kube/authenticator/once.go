package authenticator

// pendingFile holds the key that a machine without evidence asks with, until it has the
// certificate. Each name gets one certificate: a key that is lost while its request waits for the
// signer would leave the node without any, and a request with the same key is still the first.
const pendingFile = "client.pending.key"

// another says how a node without evidence gets another certificate.
func (c *Config) another() string {
	return "after kubectl nodeattest release " + c.NodeName + " and kubectl delete node " + c.NodeName + ", a fresh bootstrap token gets another"
}
