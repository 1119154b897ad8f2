// Package clusterapi is the module of Cluster API's managers and of clusterctl, which the tests of test/kube run.
package clusterapi
