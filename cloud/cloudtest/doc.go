// Package cloudtest has the metadata servers of three clouds, for tests of code that queries
// them: [GCE], [Azure] and [EC2]. Each is a cloud with keys of its own, which signs documents
// in exactly the shape of the real one and serves them to its machines on the loopback
// interface, as a net/http/httptest server does.
//
//	cloud := cloudtest.NewGCE(t)
//	server := cloud.Serve(machine) // of one machine
//	defer server.Close()
//	source, err := gce.NewSource(gce.SourceOptions{URL: server.URL})
//
// The servers are as strict as the real ones where a client could go wrong: they require the
// header that each expects, refuse requests that came through a proxy, and give AWS' documents
// only to holders of a session token.
package cloudtest
