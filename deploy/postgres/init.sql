-- Runs once, on an empty volume. An installation of yours needs no superuser, only a database that weir's role owns;
-- this one also serves the tests of the repository, which create databases and roles.
CREATE ROLE weir LOGIN SUPERUSER PASSWORD 'weir';
CREATE DATABASE weir OWNER weir;
