-- Runs once, on an empty volume. An installation of yours needs no superuser, only a database that weir's role owns;
-- this one also serves the tests of the repository, which create databases and roles.
CREATE ROLE weir LOGIN SUPERUSER PASSWORD 'weir';
CREATE DATABASE weir OWNER weir;

-- Who Grafana is: weir migrate lets this role read views, and nothing else.
\set password `cat /run/secrets/weir_read`
CREATE ROLE weir_read LOGIN PASSWORD :'password';
ALTER ROLE weir_read SET default_transaction_read_only = on;
ALTER ROLE weir_read SET statement_timeout = '30s';
