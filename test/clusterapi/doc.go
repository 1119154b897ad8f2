// Package clusterapi is the module of Cluster API's managers, which the tests of test/kube run.
package clusterapi
