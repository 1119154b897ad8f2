// Package join is the whole attested join of a client certificate, in its smallest form: a
// [Plane], which decides, and a [Node], which asks.
//
//	plane, err := join.NewPlane(join.Config{Chain: chain, Key: caKey, Kinds: kinds, Members: list})
//	reply := plane.Handle(ctx, request)                // on the control plane, for either message
//
//	node := join.Node{Name: "node-1", ClusterID: id, Prover: prover, Key: key}
//	pem, err := node.Join(ctx, file)                   // on the node
//
// It makes every check of packages attest and csr, and no input of a decision is optional. Cluster ID,
// key ring, policy and signers follow from CA, kinds and members.
//
// Take packages attest and csr instead for serving and recovery certificates, for another
// signer than this CA, and for providers that are not kinds of evidence. For another list of
// members make another Plane with the same key ring.
//
// There is no server here: the caller's server authenticates the requester. See [csr.Filed].
package join
