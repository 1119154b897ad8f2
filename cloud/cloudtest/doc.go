// Package cloudtest has the metadata servers of three clouds, for tests of code that asks
// them: [GCE], [Azure] and [EC2]. Each is a cloud with keys of its own, which signs
// documents in the very shape of the real one and serves them to its machines on the
// loopback interface, as a server of net/http/httptest does.
//
//	cloud := cloudtest.NewGCE(t)
//	server := cloud.Serve(machine) // of one machine
//	defer server.Close()
//	source, err := gce.NewSource(gce.SourceOptions{URL: server.URL})
//
// The servers are as strict as the real ones where a client could go wrong: they ask for
// the header that each wants, refuse requests that came through a proxy, and give AWS'
// documents to holders of a session token alone.
package cloudtest
